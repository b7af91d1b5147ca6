package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// options are the flags of the command.
type options struct {
	server, tokenFile, name, passwordFile string
	ips                                   []string
	stateDir, configDir                   string
	trustCA, keepToken                    bool
	service                               service
	host                                  fs.FS // the root directory of this machine
}

// Join sets up islet join.
func Join(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	o := &options{host: os.DirFS("/")}
	flags.StringVar(&o.server, "k3s", "", "the k3s server, as https://HOST:6443")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with the token of the cluster; - for standard input")
	flags.StringVar(&o.name, "node-name", "", "name of the node (default: the name in the service, or the host's name)")
	flags.StringSliceVar(&o.ips, "node-ip", nil, "addresses of the node (default: the address that reaches the server)")
	flags.BoolVar(&o.keepToken, "keep-token", false, "keep the token on this machine, for a renewal after the certificate has expired")
	flags.BoolVar(&o.trustCA, "unsafe-skip-ca-verification", false, "accept a short token, and any server that answers")
	flags.StringVar(&o.passwordFile, "password-file", k3s.DefaultPasswordFile, "file with the node's password, which is created")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/islet", "the agent's --state-dir")
	flags.StringVar(&o.configDir, "config-dir", config.DefaultDir, "directory of kubelet.yaml and edge.yaml")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) > 0:
			return command.Usage("islet join takes no argument")
		case o.server == "" || o.tokenFile == "":
			return command.Usage("islet join needs --k3s and --token-file")
		}
		o.service = service{flags: t.ServiceFlags, listed: filepath.Join(config.DefaultDir, config.FlagsFile)}
		o.service.isPlanned = filepath.Clean(o.configDir) == config.DefaultDir
		if o.service.isPlanned && t.PlannedFlags != nil {
			o.service.flags = t.PlannedFlags
		}
		return o.run(ctx, t)
	}
}

// run joins the cluster.
func (o *options) run(ctx context.Context, t *command.Tool) error {
	text, token, err := o.readToken(t.Stdin)
	if err != nil {
		return err
	}
	if err := o.complete(); err != nil {
		return err
	}
	root := k3s.Root(o.stateDir)
	lock, err := k3s.Lock(root)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := k3s.CheckRestore(o.stateDir); err != nil {
		return err
	}
	if err := o.checkService(); err != nil {
		return err
	}
	server, err := k3s.ParseServer(o.server)
	if err != nil {
		return err
	}
	o.server = server.String()
	ips, err := o.addresses(ctx, server.Host)
	if err != nil {
		return err
	}
	ca, err := k3s.FetchCA(ctx, o.server, token, o.trustCA)
	if err != nil {
		return fmt.Errorf("%w%s", err, hintForShort(token, o.trustCA))
	}
	client, err := k3s.New(k3s.Config{Server: o.server, CA: ca, Token: token, Now: time.Now})
	if err != nil {
		return err
	}
	settings, err := client.Settings(ctx)
	if err != nil {
		return explainToken(err, o.tokenFile)
	}
	files, err := o.configFiles(k3s.Current(root), settings)
	if err != nil {
		return err
	}
	password, err := k3s.EnsurePassword(o.passwordFile)
	if err != nil {
		return fmt.Errorf("the password of the node: %w", err)
	}
	made := &k3s.Cluster{Record: k3s.Record{Server: o.server, APIServer: settings.APIServer, Node: o.name, PasswordFile: o.passwordFile}}
	if o.keepToken {
		made.Token = text
	}
	if err := o.obtain(ctx, client, k3s.Node{Name: o.name, Password: password, IPs: ips}, made); err != nil {
		return err
	}
	if err := k3s.Store(root, made, contents(files), func() error { return o.checkJoined(k3s.Current(root)) }); err != nil {
		return err
	}
	o.report(t.Out, root, token, ca, made, settings, files)
	return nil
}

// readToken reads the token.
func (o *options) readToken(stdin io.Reader) (string, k3s.Token, error) {
	var text []byte
	var err error
	from := o.tokenFile
	if from == "-" {
		from = "standard input"
		text, err = io.ReadAll(io.LimitReader(stdin, k3s.MaxToken+2))
	} else {
		text, err = regular.Read(from, k3s.MaxToken+2)
	}
	if err != nil {
		return "", k3s.Token{}, err
	}
	token, err := k3s.ParseToken(string(text))
	if err != nil {
		return "", token, fmt.Errorf("%s: %w", from, err)
	}
	return strings.TrimSpace(string(text)), token, nil
}

// complete sets the name of the node, and makes paths absolute.
func (o *options) complete() (err error) {
	if c, _ := o.service.config(); o.name == "" && c != nil {
		o.name = c.Node.Name
	} else if o.name == "" {
		if _, o.name, err = config.Locate(nil); err != nil { // the name of an agent without flags of its own
			return err
		}
	}
	o.name = strings.ToLower(strings.TrimSpace(o.name))
	if errs := validation.IsDNS1123Subdomain(o.name); len(errs) > 0 {
		return fmt.Errorf("--node-name: %q is not a valid node name: %s", o.name, strings.Join(errs, "; "))
	}
	for _, path := range []*string{&o.stateDir, &o.configDir, &o.passwordFile} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// addresses returns the addresses for the node's serving certificate. By default it is the one from which this machine reaches the server.
func (o *options) addresses(ctx context.Context, server string) ([]netip.Addr, error) {
	var ips []netip.Addr
	for _, text := range o.ips {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil || ip.IsUnspecified() {
			return nil, fmt.Errorf("--node-ip: %q is not an address of this machine", text)
		}
		ips = append(ips, ip.Unmap())
	}
	if len(ips) > 0 {
		return ips, nil
	}
	probe, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "udp", server) // it sends nothing
	if err != nil {
		return nil, fmt.Errorf("no route to the server %s: %w", server, err)
	}
	defer probe.Close()
	if a, ok := probe.LocalAddr().(*net.UDPAddr); ok {
		ips = append(ips, a.AddrPort().Addr().Unmap().WithZone(""))
	}
	return ips, nil
}

// obtain requests the CAs and the certificates, and proves them at the API server.
func (o *options) obtain(ctx context.Context, c *k3s.Client, n k3s.Node, made *k3s.Cluster) (err error) {
	if made.ClientCA, made.ServerCA, err = c.CAs(ctx); err != nil {
		return err
	}
	if made.Client, err = c.Issue(ctx, k3s.ForClient, n, made.ClientCA); err != nil {
		return o.explainPassword(err)
	}
	if made.Serving, err = c.Issue(ctx, k3s.ForServing, n, made.ServerCA); err != nil {
		return o.explainPassword(err)
	}
	prover, err := k3s.New(k3s.Config{Server: o.server, CA: made.ServerCA, Certificate: made.Client.TLS(), Now: time.Now})
	if err != nil {
		return err
	}
	if err := prover.Prove(ctx, made.Record.APIServer, o.name); err != nil {
		return fmt.Errorf("the API server does not accept the certificate that the server has issued: %w", err)
	}
	return nil
}

func hintForShort(t k3s.Token, trust bool) string {
	if t.CAHash != "" || trust {
		return ""
	}
	return "; use the whole token of /var/lib/rancher/k3s/server/token, which begins with K10, or --unsafe-skip-ca-verification"
}

// explainToken adds what to do if a server has refused the token.
func explainToken(err error, file string) error {
	if k3s.IsRefused(err) {
		return fmt.Errorf("%w: the server does not accept the token in %s: it was deleted, has expired, or is a server's token where "+
			"agents have their own", err, file)
	}
	return err
}

// explainPassword adds what to do if a server has refused the password of the node.
func (o *options) explainPassword(err error) error {
	var status *k3s.StatusError
	if !errors.As(err, &status) || status.Code != 403 {
		return explainToken(err, o.tokenFile)
	}
	return fmt.Errorf("%w: the cluster has a node %q with another password than in %s; use that node's file or another --node-name, "+
		"or delete the Secret %s.node-password.k3s in kube-system if that node is gone", err, o.name, o.passwordFile, o.name)
}

// report tells what has changed, and what is left to do.
func (o *options) report(w io.Writer, root string, token k3s.Token, ca []byte, made *k3s.Cluster, s *k3s.Settings, files []configFile) {
	fmt.Fprintf(w, "the node %s belongs to the cluster of %s; its certificates are valid until %s\n", o.name, o.server,
		made.Client.Leaf.NotAfter.Format(time.DateOnly))
	fmt.Fprintf(w, "written: %s\n", k3s.Current(root))
	for _, f := range files {
		fmt.Fprintf(w, "written: %s (%s)\n", f.Path, strings.Join(f.fields, ", "))
	}
	if token.CAHash == "" {
		hash, _, err := k3s.HashCA(ca)
		if err == nil {
			fmt.Fprintf(w, "warning: the CA was not verified; its hash is %s\n", hash)
		}
	}
	if made.Client.SharedKey {
		fmt.Fprintln(w, "warning: the server has made the key of the certificates, as servers before k3s 1.33 do: all nodes have "+
			"the same key")
	}
	if s.EgressMode == "disabled" {
		fmt.Fprintln(w, "note: the server does not use tunnels (egress-selector-mode: disabled), so it must reach port 10250 of this node")
	}
	if c, _ := o.service.config(); c == nil {
		if _, name, err := config.Locate(nil); err == nil && name != o.name {
			fmt.Fprintf(w, "to do: an agent without flags has the name %s, so %s\n", name, o.service.set("--hostname-override", o.name))
		}
	}
	if len(o.ips) > 0 {
		fmt.Fprintf(w, "to do: %s\n", o.service.set("--node-ip", strings.Join(o.ips, ",")))
	}
	fmt.Fprintln(w, "to do: systemctl restart islet")
	fmt.Fprintf(w, "to do: kubectl label node %s islet.dev/node=true (on a machine with kubectl; flannel and kube-proxy of "+
		"packaging/kustomize/k3s-network run only on Nodes with this label)\n", o.name)
}
