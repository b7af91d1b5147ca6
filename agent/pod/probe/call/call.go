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

// MaxOutput is how many bytes of the output of a command, or of the body of a
// response, are kept, as by a kubelet.
const MaxOutput = 10 << 10

// ErrInvalid says that no call was made: its port or address is none.
var ErrInvalid = errors.New("invalid call")

// ErrBroken says that an answer began and broke off.
var ErrBroken = errors.New("broken answer")

// ErrTimedOut says that a command was killed because its time was over.
var ErrTimedOut = errors.New("command timed out")

// marked is an error of a kind whose text is not that of the kind.
type marked struct {
	error
	kind error
}

func (m *marked) Unwrap() []error { return []error{m.error, m.kind} }

// A Target is what is called.
type Target struct {
	ID        string        // of the container in the runtime
	Container *v1.Container // its ports have names
	IP        string        // of its pod: called where an action names no host
}

// Address is where an action leads: its host, or that of the pod, and its port.
func (t Target) Address(host string, port intstr.IntOrString) (string, error) {
	n, err := t.port(port)
	if err != nil {
		return "", &marked{err, ErrInvalid}
	}
	if host == "" {
		host = t.IP
	}
	if host == "" {
		return "", &marked{errors.New("the pod has no IP address"), ErrInvalid}
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// port is a number, the name of a port of the container, or a number written as a name.
func (t Target) port(port intstr.IntOrString) (n int, err error) {
	n = int(port.IntVal)
	if port.Type == intstr.String {
		if n, err = t.named(port.StrVal); err != nil {
			return 0, err
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", n)
	}
	return n, nil
}

func (t Target) named(name string) (int, error) {
	for _, p := range t.Container.Ports {
		if p.Name == name {
			return int(p.ContainerPort), nil
		}
	}
	return strconv.Atoi(name)
}

// A Config is what a Caller needs.
type Config struct {
	Runtime cri.Runtime
	Version string // of Kubernetes that servers are told, as in v1.36.3
}

// A Caller may be used from any goroutine.
type Caller struct{ Config }

// New starts nothing.
func New(c Config) *Caller { return &Caller{c} }

// agent is how a caller names itself: kube-probe/1.36 or kube-lifecycle/1.36.
func (c *Caller) agent(purpose string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(c.Version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return "kube-" + purpose + "/" + major + "." + minor
}

// within bounds a context; 0 is no bound.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// dialer opens connections that carry one call: they need no keep-alive.
func dialer() *net.Dialer { return &net.Dialer{KeepAlive: -1} }

// Connect opens a TCP connection and closes it. A timeout of 0 is none but ctx.
func (c *Caller) Connect(ctx context.Context, t Target, a *v1.TCPSocketAction, timeout time.Duration) error {
	address, err := t.Address(a.Host, a.Port)
	if err != nil {
		return err
	}
	ctx, stop := within(ctx, timeout)
	defer stop()
	conn, err := dialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
