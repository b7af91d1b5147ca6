package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/netns"
)

func loopbackActions() pluginActions {
	return pluginActions{add: loopbackAdd, del: loopbackDel, check: loopbackCheck}
}

func loopbackAdd(ctx context.Context, c *pluginCall) (*current.Result, error) {
	previous, err := c.previousResult()
	if err != nil {
		return nil, err
	}
	if err := bridge.SetLoopbackUp(netns.At(c.Args.Netns)); err != nil {
		return nil, err
	}
	if previous != nil {
		return previous, nil
	}
	at := 0
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	result.Interfaces = []*current.Interface{{Name: "lo", Mac: "00:00:00:00:00:00", Sandbox: c.Args.Netns}}
	for _, cidr := range []string{"127.0.0.1/8", "::1/128"} {
		ip, network, err := net.ParseCIDR(cidr)
		if err != nil {
			return nil, err
		}
		result.IPs = append(result.IPs, &current.IPConfig{Interface: &at, Address: net.IPNet{IP: ip, Mask: network.Mask}})
	}
	return result, nil
}

// withLoopback passes the loopback interface of the sandbox's namespace to the caller's function.
func withLoopback(c *pluginCall, do func(*netlink.Handle, netlink.Link) error) error {
	h, err := netns.At(c.Args.Netns).Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByIndex(1)
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	return do(h, lo)
}

func loopbackDel(ctx context.Context, c *pluginCall) error {
	if c.Args.Netns == "" {
		return nil
	}
	err := withLoopback(c, func(h *netlink.Handle, lo netlink.Link) error { return h.LinkSetDown(lo) })
	if errors.Is(err, fs.ErrNotExist) { // the namespace and its loopback interface are gone
		return nil
	}
	return err
}

func loopbackCheck(ctx context.Context, c *pluginCall) error {
	return withLoopback(c, func(_ *netlink.Handle, lo netlink.Link) error {
		if lo.Attrs().Flags&net.FlagUp == 0 {
			return errors.New("loopback is down")
		}
		return nil
	})
}
