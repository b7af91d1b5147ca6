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

// DefaultProfile is the name of the profile of containers that specify none. It has the rules of
// containerd's default profile.
const DefaultProfile = "islet-default"

// errDisabled is returned if AppArmor is disabled in the kernel.
var errDisabled = errors.New("AppArmor is not enabled on the host")

// errNoParser is returned if apparmor_parser is not installed. After this error there is no pause
// before the next attempt, because the check is cheap.
var errNoParser = errors.New("apparmor_parser is not installed: install the package apparmor")

// minPause is the minimum time between a failed run of the parser and the next run.
const minPause = time.Minute

// A Host selects and loads the AppArmor profiles of containers. Its methods are safe for concurrent
// use.
type Host struct {
	root string
	load func(name string) error
	stop func() // cancels a load
	log  *slog.Logger

	background sync.WaitGroup // running attempts

	mu          sync.Mutex // not held during I/O
	loaded      time.Time  // when this process last loaded the default profile, or zero
	lastErr     error      // error of the last attempt, or nil
	nextAttempt time.Time  // earliest time of the next attempt
	current     *attempt   // running attempt, or nil
}

// An attempt is a run of apparmor_parser that loads the default profile.
type attempt struct {
	done chan struct{} // closed when the attempt has ended
	err  error         // set before done is closed
}

// New returns a Host. New neither reads nor changes the state of the system.
func New(log *slog.Logger) *Host {
	ctx, stop := context.WithCancel(context.Background())
	return &Host{root: "/", load: func(name string) error { return loadProfile(ctx, name) }, stop: stop, log: log}
}

// Close kills a running parser and waits until it has ended.
func (h *Host) Close() {
	h.stop()
	h.background.Wait()
}

// Enabled returns nil if AppArmor is enabled and the list of profiles is readable, and otherwise
// the reason.
func (h *Host) Enabled() error {
	b, err := os.ReadFile(filepath.Join(h.root, "sys/module/apparmor/parameters/enabled"))
	if err != nil || !strings.HasPrefix(string(b), "Y") {
		return errDisabled
	}
	if _, err := os.Stat(h.profilesPath()); err != nil {
		return fmt.Errorf("the list of AppArmor profiles cannot be read: mount securityfs: %w", err)
	}
	return nil
}

func (h *Host) profilesPath() string {
	return filepath.Join(h.root, "sys/kernel/security/apparmor/profiles")
}

// Profile returns the name of the profile for a container, or "" for no profile. It returns an
// error if a requested profile cannot be enforced. A container that requests no profile gets the
// default profile if it can be loaded. A privileged container gets no profile unless it requests a
// profile of the node.
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
		return h.findProfile(strings.TrimPrefix(p.GetLocalhostRef(), "localhost/"))
	}
	if sec.GetPrivileged() {
		return "", nil
	}
	if err := h.loadDefault(p != nil); err != nil {
		if p == nil {
			return "", nil // run logs the reason, and islet doctor reports it
		}
		return "", fmt.Errorf("AppArmor's default profile cannot be loaded: %w", err)
	}
	return DefaultProfile, nil
}

// findProfile returns the name of a profile of the node. It returns an error if the profile is not
// loaded. The profile may have any mode.
func (h *Host) findProfile(name string) (string, error) {
	switch mode, err := h.readMode(name); {
	case err != nil:
		return "", fmt.Errorf("look for AppArmor profile %q: %w", name, err)
	case mode == "":
		return "", fmt.Errorf("AppArmor profile %q is not loaded: load it on the node with apparmor_parser -r", name)
	}
	return name, nil
}

// readMode returns the mode of a profile, or "" if the profile is not loaded. The kernel's list has
// lines of the form "name (mode)". A name may contain spaces.
func (h *Host) readMode(name string) (string, error) {
	if name == "" {
		return "", errors.New("the profile has no name")
	}
	f, err := os.Open(h.profilesPath())
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

// isEnforced reports whether a profile in this mode restricts processes.
func isEnforced(mode string) bool { return mode == "enforce" || mode == "kill" }
