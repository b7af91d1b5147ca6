package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

func (c *Cluster) startEtcd() error {
	return c.launch("etcd", "--data-dir="+dir+"/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380", "--quota-backend-bytes=268435456")
}

// IsFormer reports whether the version of the control plane is Kubernetes 1.36 (see build.sh).
func IsFormer() bool { return os.Getenv("CONTROL_PLANE") == "1.36" }

// startAPIServer starts the API server with the flags of kubeadm's manifest.
func (c *Cluster) startAPIServer() error {
	pki := dir + "/pki/"
	var former []string // features that are beta in 1.36 and off by default
	if IsFormer() {
		former = []string{"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
			"--runtime-config=certificates.k8s.io/v1beta1=true"}
	}
	flags := append(append(former, auditFlags()...),
		"--advertise-address="+gateway,
		"--secure-port=6443",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction,PodNodeSelector",
		"--enable-bootstrap-token-auth=true",
		"--etcd-servers=http://127.0.0.1:2379",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--client-ca-file="+pki+"ca.crt",
		"--tls-cert-file="+pki+"apiserver.crt",
		"--tls-private-key-file="+pki+"apiserver.key",
		"--kubelet-client-certificate="+pki+"apiserver-kubelet-client.crt",
		"--kubelet-client-key="+pki+"apiserver-kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file="+pki+"front-proxy-client.crt",
		"--proxy-client-key-file="+pki+"front-proxy-client.key",
		"--requestheader-client-ca-file="+pki+"front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+pki+"sa.pub",
		"--service-account-signing-key-file="+pki+"sa.key",
	)
	return c.launch("kube-apiserver", append(flags, c.variant.APIServer...)...)
}

// connect waits for the API server and creates the tests' client.
func (c *Cluster) connect() error {
	if err := c.makeClient(); err != nil {
		return err
	}
	return c.await("kube-apiserver", c.ready)
}

func (c *Cluster) ready(ctx context.Context) error {
	_, err := c.admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// startControllers starts the controller manager and the scheduler. Leader election is off, because
// only one instance of each runs.
func (c *Cluster) startControllers() error {
	pki, conf := dir+"/pki/", dir+"/controller-manager.conf"
	flags := append([]string(nil),
		"--kubeconfig="+conf, "--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--use-service-account-credentials=true",
		"--allocate-node-cidrs=true",
		"--cluster-cidr=10.100.0.0/16",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--client-ca-file="+pki+"ca.crt",
		"--root-ca-file="+pki+"ca.crt",
		"--cluster-signing-cert-file="+pki+"ca.crt",
		"--cluster-signing-key-file="+pki+"ca.key",
		"--requestheader-client-ca-file="+pki+"front-proxy-ca.crt",
		"--service-account-private-key-file="+pki+"sa.key",
	)
	if err := c.launch("kube-controller-manager", append(flags, c.variant.Controllers...)...); err != nil {
		return err
	}
	conf = dir + "/scheduler.conf"
	return c.launch("kube-scheduler", "--kubeconfig="+conf, "--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf,
		"--bind-address=127.0.0.1", "--leader-elect=false")
}

// StopAPIServer kills the API server. Connections end, and new ones are refused. When the test ends, the API server is
// started again if it is not running.
func (c *Cluster) StopAPIServer(t testing.TB) {
	t.Helper()
	c.halt("kube-apiserver")
	t.Cleanup(func() {
		select {
		case <-c.procs["kube-apiserver"].Ended:
			c.StartAPIServer(t)
		default:
		}
	})
}

// StartAPIServer starts the API server again and returns when it is ready.
func (c *Cluster) StartAPIServer(t testing.TB) {
	t.Helper()
	if err := c.startAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.await("kube-apiserver", c.ready); err != nil {
		t.Fatalf("start the API server: %v\n%s", err, c.Log("kube-apiserver", 4<<10))
	}
}

// Kubectl runs kubectl as an administrator on the control plane's host. The test fails if the
// command fails.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.TryKubectl("", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl runs kubectl with the given standard input. It returns standard output and, if the
// command fails, standard error.
func (c *Cluster) TryKubectl(stdin string, args ...string) (string, error) {
	cmd := c.KubectlCommand(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

// KubectlCommand returns a command that runs kubectl as an administrator on the control plane's
// host, for example for machine.StartProcess.
func (c *Cluster) KubectlCommand(args ...string) *exec.Cmd {
	all := append([]string{"HOME=" + dir, "KUBECONFIG=" + dir + "/super-admin.conf", c.bin + "/kubectl"}, args...)
	return c.host.Command("env", all...)
}

// RunAsAdmin runs the command that AdminCommand returns, and returns its output.
func (c *Cluster) RunAsAdmin(variable string, args ...string) (string, error) {
	out, err := c.AdminCommand(variable, args...).CombinedOutput()
	return string(out), err
}

// AdminCommand returns a command that runs a program on the control plane's host. The given
// environment variable contains the path of an administrator's kubeconfig. Arguments of the form
// NAME=VALUE before the program are additional environment variables.
func (c *Cluster) AdminCommand(variable string, args ...string) *exec.Cmd {
	return c.host.Command("env", append([]string{"HOME=" + dir, variable + "=" + dir + "/super-admin.conf"}, args...)...)
}

// JoinCommand returns the command that kubeadm prints for joining a new node.
func (c *Cluster) JoinCommand(t testing.TB) []string {
	t.Helper()
	out, err := c.host.Command(c.bin+"/kubeadm", "token", "create", "--print-join-command",
		"--kubeconfig="+dir+"/super-admin.conf").Output()
	if err != nil {
		t.Fatalf("kubeadm token create: %v", err)
	}
	return append([]string{c.bin + "/kubeadm"}, strings.Fields(string(out))[1:]...)
}

// Dial opens a connection from the control plane's host, for example to a port of a node.
func (c *Cluster) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var conn net.Conn
	err := machine.InNetwork(c.host.Pid(), func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("from the control plane: %w", err)
	}
	return conn, nil
}
