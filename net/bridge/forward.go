package bridge

import (
	"fmt"
	"os"

	"github.com/islet-edge/islet/net/netns"
)

// Forward enables forwarding for the given families. By default, a node that forwards IPv6 ignores router advertisements and would lose
// its own default route. Forward therefore sets accept_ra to 2 on the interfaces that accept router advertisements.
func Forward(ns netns.NS, ipv4, ipv6 bool) error {
	if ipv4 {
		if err := ns.Set(netns.Sysctl{Name: "ipv4/ip_forward", Value: "1"}); err != nil {
			return err
		}
	}
	if !ipv6 {
		return nil
	}
	return ns.Do(func() error {
		const forwarding, conf = "/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv6/conf/"
		on, err := os.ReadFile(forwarding)
		if err != nil {
			return fmt.Errorf("IPv6 pod CIDR, but no IPv6 in the kernel: %w", err)
		}
		if string(on) == "1\n" {
			return nil
		}
		interfaces, err := os.ReadDir(conf)
		if err != nil {
			return fmt.Errorf("list IPv6 interfaces: %w", err)
		}
		for _, i := range interfaces {
			file := conf + i.Name() + "/accept_ra"
			if value, err := os.ReadFile(file); err != nil || string(value) != "1\n" {
				continue // the interface no longer exists, or an administrator has set another value
			}
			if err := os.WriteFile(file, []byte("2"), 0); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("set accept_ra of %s: %w", i.Name(), err)
			}
		}
		if err := os.WriteFile(forwarding, []byte("1"), 0); err != nil {
			return fmt.Errorf("enable IPv6 forwarding: %w", err)
		}
		return nil
	})
}
