package apparmor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultProfile is the name of the profile of containers that ask for none: that
// of containerd, under a name of its own (see default.go).
const DefaultProfile = "islet-default"

// errOff says that the kernel does not enforce profiles.
var errOff = errors.New("AppArmor is not enabled on the host")

// errNoParser says that there is nothing to load profiles with. To find that out costs
// nothing.
var errNoParser = errors.New("apparmor_parser is not installed: install the package apparmor")

// pause is how long a parser that failed is not run again.
const pause = time.Minute

// A Host is one with, or without, AppArmor. Its methods may be called at once.
type Host struct {
	root string
	load func(name string) error
	stop func() // ends a load
	log  *slog.Logger

	background sync.WaitGroup // tries that nobody waits for

	mu     sync.Mutex // held for no file and no program
	loaded time.Time  // when this process loaded the default profile; zero: not yet
	failed error      // of the last try to load it; nil: there was none, or it went well
	again  time.Time  // the parser, which failed, is not run before
	trying *try       // that is under way; nil: none is
}

// A try to load the default profile.
type try struct {
	done chan struct{} // is closed at its end
	err  error         // set before
}

// New looks at nothing yet.
func New(log *slog.Logger) *Host {
	ctx, stop := context.WithCancel(context.Background())
	return &Host{root: "/", load: func(name string) error { return load(ctx, name) }, stop: stop, log: log}
}

// Close ends a parser that runs still.
func (h *Host) Close() {
	h.stop()
	h.background.Wait()
}

// Enabled is nil, or says why profiles are not enforced here.
func (h *Host) Enabled() error {
	b, err := os.ReadFile(filepath.Join(h.root, "sys/module/apparmor/parameters/enabled"))
	if err != nil || !strings.HasPrefix(string(b), "Y") {
		return errOff
	}
	if _, err := os.Stat(h.profiles()); err != nil {
		return fmt.Errorf("AppArmor's profiles cannot be seen: mount securityfs: %w", err)
	}
	return nil
}

func (h *Host) profiles() string {
	return filepath.Join(h.root, "sys/kernel/security/apparmor/profiles")
}

// Profile names the profile that a container is to run with; "" is none. What was
// asked for and cannot be enforced is an error. A container that asks for nothing
// gets the default profile where that works; a privileged one gets none.
func (h *Host) Profile(sec *api.LinuxContainerSecurityContext) (string, error) {
	p := sec.GetApparmor()
	if p.GetProfileType() == api.SecurityProfile_Unconfined && p != nil {
		return "", nil
	}
	if err := h.Enabled(); err != nil {
		if p == nil {
			return "", nil
		}
		return "", fmt.Errorf("AppArmor profile cannot be enforced: %w", err)
	}
	if p.GetProfileType() == api.SecurityProfile_Localhost {
		return h.localhost(strings.TrimPrefix(p.GetLocalhostRef(), "localhost/"))
	}
	if sec.GetPrivileged() {
		return "", nil
	}
	if err := h.loadDefault(p != nil); err != nil {
		if p == nil {
			return "", nil // reported once, and by islet doctor
		}
		return "", fmt.Errorf("AppArmor's default profile cannot be loaded: %w", err)
	}
	return DefaultProfile, nil
}

// localhost is a profile that somebody has loaded, in whatever mode.
func (h *Host) localhost(name string) (string, error) {
	switch mode, err := h.mode(name); {
	case err != nil:
		return "", fmt.Errorf("look for AppArmor profile %q: %w", name, err)
	case mode == "":
		return "", fmt.Errorf("AppArmor profile %q is not loaded: load it on the node with apparmor_parser -r", name)
	}
	return name, nil
}

// mode is that of a profile in the kernel, empty for one that it does not have. Lines are
// "name (mode)", and a name may have spaces.
func (h *Host) mode(name string) (string, error) {
	if name == "" {
		return "", errors.New("it has no name")
	}
	f, err := os.Open(h.profiles())
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if i := strings.LastIndex(lines.Text(), " ("); i > 0 && lines.Text()[:i] == name {
			return strings.TrimSuffix(lines.Text()[i+2:], ")"), nil
		}
	}
	return "", lines.Err()
}

// enforced reports whether a profile that is in this mode holds anybody back.
func enforced(mode string) bool { return mode == "enforce" || mode == "kill" }
