package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/runtime/cri"
)

// MaxOutput is the maximum number of bytes of a command's output or a response's body that are kept, as in a kubelet.
const MaxOutput = 10 << 10

// ErrInvalid means that no call was made, because the port or the address is invalid.
var ErrInvalid = errors.New("invalid call")

// ErrBroken means that the connection failed during the response.
var ErrBroken = errors.New("broken answer")

// ErrTimedOut means that a command was killed because its timeout had passed.
var ErrTimedOut = errors.New("command timed out")

// markedError marks an error with a kind of error, such as ErrInvalid, without changing the
// error's text.
type markedError struct {
	error
	kind error
}

func (m *markedError) Unwrap() []error { return []error{m.error, m.kind} }

// A Target is the container to call.
type Target struct {
	ID        string        // container ID of the runtime
	Container *v1.Container // used to look up ports by name
	IP        string        // the pod's address, which is used if an action specifies no host
}

// Address returns the address for a call. It consists of the port number and the host of the action, or the pod's IP
// if the action has no host.
func (t Target) Address(host string, port intstr.IntOrString) (string, error) {
	n, err := t.portNumber(port)
	if err != nil {
		return "", &markedError{err, ErrInvalid}
	}
	if host == "" {
		host = t.IP
	}
	if host == "" {
		return "", &markedError{errors.New("the pod has no IP address"), ErrInvalid}
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// portNumber returns the number of a port. The port is specified as a number, as a number in a string, or by its name in the
// container.
func (t Target) portNumber(port intstr.IntOrString) (n int, err error) {
	n = int(port.IntVal)
	if port.Type == intstr.String {
		if n, err = t.portByName(port.StrVal); err != nil {
			return 0, err
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", n)
	}
	return n, nil
}

func (t Target) portByName(name string) (int, error) {
	for _, p := range t.Container.Ports {
		if p.Name == name {
			return int(p.ContainerPort), nil
		}
	}
	return strconv.Atoi(name)
}

// Config configures a Caller.
type Config struct {
	Runtime cri.Runtime
	Version string // the Kubernetes version for the User-Agent header, for example v1.37.2
	// GateEnabled reports whether a feature gate is on. If it is nil, all are off. The gates are H2CContainerProbe and
	// GRPCContainerProbeTLS.
	GateEnabled func(name string) bool
}

// A Caller makes calls. It is safe for concurrent use.
type Caller struct{ Config }

// New returns a Caller. It starts no goroutine.
func New(c Config) *Caller {
	if c.GateEnabled == nil {
		c.GateEnabled = func(string) bool { return false }
	}
	return &Caller{c}
}

// userAgent returns the User-Agent of a call, such as kube-probe/1.37 or kube-lifecycle/1.37.
func (c *Caller) userAgent(purpose string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(c.Version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return "kube-" + purpose + "/" + major + "." + minor
}

// withTimeout returns a context with a timeout. A timeout of 0 means that there is no timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
