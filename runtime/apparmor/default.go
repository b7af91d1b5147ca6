package apparmor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// settings contains the properties of the host on which the text of the default profile depends.
type settings struct {
	abi, tunables, base bool   // whether these files of AppArmor exist
	manager             string // name of this process's profile
}

// inspectHost reads the settings from the directory of AppArmor's files, and from the file that contains the profile of this process.
func inspectHost(dir, label string) settings {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	s := settings{abi: there("abi/3.0"), tunables: there("tunables/global"), base: there("abstractions/base"), manager: "unconfined"}
	if b, err := os.ReadFile(label); err == nil {
		if name, _, _ := strings.Cut(strings.TrimRight(string(b), "\n\x00"), " "); name != "" {
			s.manager = name
		}
	}
	return s
}

// denyRules contains the deny rules of the default profile of containerd and Docker. They forbid
// mount(2), access to kernel files in /sys, and writing in /proc except for /proc/<pid> and
// kernel.shm*.
var denyRules = []string{
	"@{PROC}/* w",
	"@{PROC}/{[^1-9/],[^1-9/][^0-9/],[^1-9s/][^0-9y/][^0-9s/],[^1-9/][^0-9/][^0-9/][^0-9/]*}/** w",
	"@{PROC}/sys/[^k]** w",
	"@{PROC}/sys/kernel/{?,??,[^s][^h][^m]**} w",
	"@{PROC}/sysrq-trigger rwklx",
	"@{PROC}/kcore rwklx",
	"mount",
	"/sys/[^f]*/** wklx",
	"/sys/f[^s]*/** wklx",
	"/sys/fs/[^c]*/** wklx",
	"/sys/fs/c[^g]*/** wklx",
	"/sys/fs/cg[^r]*/** wklx",
	"/sys/firmware/** rwklx",
	"/sys/devices/virtual/powercap/** rwklx",
	"/sys/kernel/security/** rwklx",
}

// profileText returns the text of the default profile. It does not use text/template: with that
// package, the linker would keep all exported methods, which would add 7 MB to the binary.
func profileText(name string, s settings) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if s.abi {
		line("abi <abi/3.0>,")
	}
	if s.tunables {
		line("#include <tunables/global>")
	} else {
		line("@{PROC}=/proc/")
	}
	line("profile %s flags=(attach_disconnected,mediate_deleted) {", name)
	if s.base {
		line("#include <abstractions/base>")
	}
	for _, kind := range []string{"network", "capability", "file", "umount"} {
		line("%s,", kind)
	}
	for _, peer := range []string{"unconfined", "runc", "crun", s.manager} {
		line("signal (receive) peer=%s,", peer)
	}
	line("signal (send,receive) peer=%s,", name)
	for _, rule := range denyRules {
		line("deny %s,", rule)
	}
	line("ptrace (trace,tracedby,read,readby) peer=%s,\n}", name)
	return b.String()
}

// parserTimeout is the timeout of apparmor_parser.
const parserTimeout = 30 * time.Second

// loadProfile loads the default profile into the kernel with apparmor_parser.
func loadProfile(ctx context.Context, name string) error {
	parser, err := exec.LookPath("apparmor_parser")
	if err != nil {
		return errNoParser
	}
	ctx, stop := context.WithTimeoutCause(ctx, parserTimeout, fmt.Errorf("it did not finish within %s", parserTimeout))
	defer stop()
	return runParser(ctx, parser, profileText(name, inspectHost("/etc/apparmor.d", "/proc/self/attr/current")))
}

// runParser loads a profile with the given parser. When ctx ends, the parser and its child processes are killed.
func runParser(ctx context.Context, parser, profile string) error {
	cmd := exec.CommandContext(ctx, parser, "-Kr")
	cmd.Stdin = strings.NewReader(profile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // processes outside the process group may keep the output open
	out, err := cmd.CombinedOutput()
	switch why := context.Cause(ctx); {
	case err == nil || why == nil && errors.Is(err, exec.ErrWaitDelay): // the parser has succeeded
		return nil
	case why != nil:
		err = why
	}
	return fmt.Errorf("apparmor_parser: %w: %.500s", err, out)
}
