package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// dir is the directory of the control plane's files. It is on a tmpfs of the control plane's host.
const dir = "/run/control"

// A Cluster is a running control plane. The methods are safe for concurrent use, except the methods
// that stop or start parts of the control plane.
type Cluster struct {
	host  *machine.Host
	bin   string // folder of the binaries
	admin *kubernetes.Clientset
	conf  *rest.Config
	token string // bootstrap token of all nodes

	variant Variant
	procs   map[string]*machine.Process

	mu    sync.Mutex                         // guards the following fields
	cable int                                // number of cables so far, for unique names of interfaces
	hosts int                                // number of addresses of machines so far
	ports int                                // number of ports of proxies so far
	kinds map[string]*metav1.APIResourceList // the API server's resources by group and version, as far as a test has used them
}

// shared is the control plane for all tests of this program. The tests share this control plane, because a start takes seconds. Each test
// has its own nodes and namespaces.
var shared struct {
	sync.Once
	*Cluster
	err error
}

// Main is the body of a TestMain. The control planes' namespaces and processes end with this process.
func Main(m *testing.M) {
	machine.Main()
	code := m.Run()
	if shared.Cluster != nil {
		if shared.variant.Stop != nil {
			shared.variant.Stop()
		}
		shared.host.Halt()
	}
	os.Exit(code)
}

// Start returns the control plane of this test program. The first call starts the control plane.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return StartVariant(t, Variant{})
}

// StartVariant is like Start for another distribution's control plane. All tests of a program have the same variant.
func StartVariant(t testing.TB, v Variant) *Cluster {
	t.Helper()
	shared.Do(func() { shared.Cluster, shared.err = start(v) })
	if shared.err != nil {
		t.Fatalf("start the control plane: %v", shared.err)
	}
	return shared.Cluster
}

func start(v Variant) (_ *Cluster, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("namespaces need root")
	}
	bin, err := build()
	if err != nil {
		return nil, err
	}
	host, err := machine.BootHost("control")
	if err != nil {
		return nil, err
	}
	c := &Cluster{host: host, bin: bin, token: "abcdef.0123456789abcdef", variant: v, procs: map[string]*machine.Process{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, c.logs())
			host.Halt()
		}
	}()
	for _, step := range []func() error{
		c.createNetwork, c.certify, c.startEtcd, c.startAPIServer, c.serve, c.connect, c.startControllers, c.allowJoin,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Programs returns the folder of the control plane's programs and kubeadm.
func Programs(t testing.TB) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// build builds the control plane's programs unless they exist, and returns their folder.
func build() (string, error) {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("not inside a checkout: %w", err)
	}
	cmd := exec.Command(filepath.Join(strings.TrimSpace(string(top)), "test/cluster/build.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// kubeadmConfig is kubeadm's configuration. With this configuration, kubeadm's phases need no access to the internet.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s, bindPort: 6443}
nodeRegistration: {name: control, criSocket: "unix:///run/none.sock"}
bootstrapTokens:
- token: %[2]s
  groups: ["system:bootstrappers:kubeadm:default-node-token"]
  usages: [signing, authentication]
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[3]s
certificatesDir: %[4]s/pki
controlPlaneEndpoint: %[1]s:6443
encryptionAlgorithm: ECDSA-P256
networking: {serviceSubnet: 10.96.0.0/16, podSubnet: 10.100.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi}
`

func (c *Cluster) certify() error {
	version, err := os.ReadFile(filepath.Join(c.bin, "versions"))
	if err != nil {
		return err
	}
	_, v, _ := strings.Cut(string(version), " ")
	v, _, _ = strings.Cut(v, ",")
	if err := os.MkdirAll(c.path(""), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	config := fmt.Sprintf(kubeadmConfig, gateway, c.token, v, dir)
	if err := os.WriteFile(c.path("kubeadm.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	return c.credentials()
}

// credentials creates the missing certificates and kubeconfigs.
func (c *Cluster) credentials() error {
	if c.variant.Certify != nil {
		return c.variant.Certify(c)
	}
	if err := c.kubeadm("certs", "all"); err != nil {
		return err
	}
	return c.kubeadm("kubeconfig", "all", "--kubeconfig-dir="+dir)
}

// allowJoin creates the rules and objects that nodes need for bootstrapping and that kubeadm needs for joining.
func (c *Cluster) allowJoin() error {
	if c.variant.AllowJoin != nil {
		return c.variant.AllowJoin(c)
	}
	admin := "--kubeconfig=" + dir + "/super-admin.conf"
	if err := c.kubeadm("upload-config", "all", admin); err != nil {
		return err
	}
	return c.kubeadm("bootstrap-token", admin)
}

func (c *Cluster) kubeadm(phase ...string) error {
	args := append([]string{"init", "phase"}, phase...)
	return c.run("", filepath.Join(c.bin, "kubeadm"), append(args, "--config="+dir+"/kubeadm.yaml")...)
}

// run executes a command on the control plane's host.
func (c *Cluster) run(stdin, name string, args ...string) error {
	cmd := c.host.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

// path returns the path at which this process can open a file of the control plane.
func (c *Cluster) path(name string) string {
	return filepath.Join("/proc", fmt.Sprint(c.host.Pid()), "root", dir, name)
}

// launch starts a part of the control plane with its output in a log file.
func (c *Cluster) launch(name string, args ...string) error {
	log, err := os.OpenFile(c.path(name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := c.host.Command(filepath.Join(c.bin, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := machine.StartProcess(cmd)
	if err != nil {
		return err
	}
	c.procs[name] = p
	return nil
}

// halt kills a part of the control plane and waits for its end.
func (c *Cluster) halt(name string) {
	syscall.Kill(c.procs[name].Pid, syscall.SIGKILL)
	<-c.procs[name].Ended
}

// await waits until a part of the control plane is ready. It polls, because the parts do not signal
// their readiness.
func (c *Cluster) await(part string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), machine.WaitTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.procs[part].Ended:
			return fmt.Errorf("%s ended", part)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", part, err)
		}
	}
}

// Log returns the end of the log of a part of the control plane.
func (c *Cluster) Log(part string, most int) string {
	b, _ := os.ReadFile(c.path(part + ".log"))
	return string(b[max(0, len(b)-most):])
}

func (c *Cluster) logs() string {
	var b bytes.Buffer
	for name := range c.procs {
		fmt.Fprintf(&b, "--- end of the log of %s\n%s\n", name, c.Log(name, 2<<10))
	}
	return b.String()
}
