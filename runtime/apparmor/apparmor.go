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

// DefaultProfile is the name of the profile of containers that specify none: containerd's default
// profile under another name (see default.go).
const DefaultProfile = "islet-default"

// errOff is returned if the kernel does not enforce profiles.
var errOff = errors.New("AppArmor is not enabled on the host")

// errNoParser is returned if apparmor_parser is not installed. Since this check is cheap, it is
// repeated without a pause.
var errNoParser = errors.New("apparmor_parser is not installed: install the package apparmor")

// pause is how long a parser that failed is not run again.
const pause = time.Minute

// A Host is a host with or without AppArmor. Its methods are safe for concurrent use.
type Host struct {
	root string
	load func(name string) error
	stop func() // cancels a load
	log  *slog.Logger

	background sync.WaitGroup // loads that no caller waits for

	mu     sync.Mutex // not held while files are read or programs run
	loaded time.Time  // when this process loaded the default profile; zero: never
	failed error      // error of the last attempt to load it, or nil
	again  time.Time  // the parser is not run before this time
	trying *try       // the attempt in progress; nil: none
}

// A try is an attempt to load the default profile.
type try struct {
	done chan struct{} // closed when the attempt has ended
	err  error         // set before done is closed
}

// New returns a Host. It does not access the system yet.
func New(log *slog.Logger) *Host {
	ctx, stop := context.WithCancel(context.Background())
	return &Host{root: "/", load: func(name string) error { return load(ctx, name) }, stop: stop, log: log}
}

// Close kills a running parser and waits for its end.
func (h *Host) Close() {
	h.stop()
	h.background.Wait()
}

// Enabled returns nil, or the reason why profiles are not enforced.
func (h *Host) Enabled() error {
	b, err := os.ReadFile(filepath.Join(h.root, "sys/module/apparmor/parameters/enabled"))
	if err != nil || !strings.HasPrefix(string(b), "Y") {
		return errOff
	}
	if _, err := os.Stat(h.profiles()); err != nil {
		return fmt.Errorf("AppArmor's list of profiles cannot be read: mount securityfs: %w", err)
	}
	return nil
}

func (h *Host) profiles() string {
	return filepath.Join(h.root, "sys/kernel/security/apparmor/profiles")
}

// Profile returns the name of the profile for a container; "" means none. A requested profile that
// cannot be enforced is an error. A container that requests none gets the default profile if it can
// be loaded; a privileged one gets none.
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
			return "", nil // reported once in the log, and by islet doctor
		}
		return "", fmt.Errorf("AppArmor's default profile cannot be loaded: %w", err)
	}
	return DefaultProfile, nil
}

// localhost returns the name of a profile that is loaded, in any mode.
func (h *Host) localhost(name string) (string, error) {
	switch mode, err := h.mode(name); {
	case err != nil:
		return "", fmt.Errorf("look for AppArmor profile %q: %w", name, err)
	case mode == "":
		return "", fmt.Errorf("AppArmor profile %q is not loaded: load it on the node with apparmor_parser -r", name)
	}
	return name, nil
}

// mode returns the mode of a loaded profile, or "" if it is not loaded. The kernel's lines are
// "name (mode)", and a name may contain spaces.
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

// enforced reports whether a profile in this mode restricts processes.
func enforced(mode string) bool { return mode == "enforce" || mode == "kill" }
