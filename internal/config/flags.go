package config

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/spelling"
)

// KubernetesVersion is the version of the kubelet that islet replaces.
const KubernetesVersion = "v1.37.2"

// KubernetesMinor is the release in the User-Agent of probes and hooks.
const KubernetesMinor = "1.37"

const previousVersion = "1.36" // the previous minor version

// settings contains all settings that flags can change. In the tables, a field is named by its JSON
// path in settings.
type settings struct {
	kubelet.KubeletConfiguration `json:",inline"`

	Edge  EdgeConfiguration `json:"edge"`
	Flags options           `json:"flags"`
}

// options contains the settings that can be set only on the command line.
type options struct {
	RootDir                       string            `json:"rootDir"`
	StateDir                      string            `json:"stateDir"`
	RunDir                        string            `json:"runDir"`
	Config                        string            `json:"config"`
	ConfigDir                     string            `json:"configDir"`
	EdgeConfig                    string            `json:"edgeConfig"`
	Kubeconfig                    string            `json:"kubeconfig"`
	BootstrapKubeconfig           string            `json:"bootstrapKubeconfig"`
	CertDir                       string            `json:"certDir"`
	HostnameOverride              string            `json:"hostnameOverride"`
	NodeIP                        string            `json:"nodeIP"`
	NodeLabels                    map[string]string `json:"nodeLabels"`
	CloudProvider                 string            `json:"cloudProvider"`
	ImageCredentialProviderConfig string            `json:"imageCredentialProviderConfig"`
	ImageCredentialProviderBinDir string            `json:"imageCredentialProviderBinDir"`
	MinimumContainerTTL           metav1.Duration   `json:"minimumContainerTTL"`
	MaxDeadPerContainer           int32             `json:"maxDeadPerContainer"`
	MaxDeadContainers             int32             `json:"maxDeadContainers"`
}

const defaultRun = "/run/islet"

func defaultOptions() options {
	return options{
		RootDir:             "/var/lib/kubelet",
		StateDir:            "/var/lib/islet",
		RunDir:              defaultRun,
		MaxDeadPerContainer: 1,
		MaxDeadContainers:   -1,
	}
}

// InfoRequest is the error that Load returns for --help and --version. It is not a failure. The caller prints
// Text and exits.
type InfoRequest struct {
	Text    string
	Version bool // Text is the version of the kubelet that islet replaces
}

// Error returns Text.
func (a *InfoRequest) Error() string { return a.Text }

// A flagSet contains all flags, each bound to a field of settings.
type flagSet struct {
	*pflag.FlagSet
	rows map[string]flagRow // by name
}

func newFlagSet(s *settings) flagSet {
	fs := flagSet{pflag.NewFlagSet("islet", pflag.ContinueOnError), map[string]flagRow{}}
	known := fieldRows()
	fs.SortFlags = false
	fs.Usage = func() {}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	for _, row := range flagTable() {
		fs.rows[row.name] = row
		if row.field == "" {
			f := fs.VarPF(ignoredValue{}, row.name, "", "")
			f.Hidden = true
			if row.bare {
				f.NoOptDefVal = "true"
			}
			continue
		}
		v := &flagValue{field: fieldAt(reflect.ValueOf(s).Elem(), row.field)}
		short := ""
		if row.name == "v" {
			short = "v"
		}
		f := fs.VarPF(v, row.name, short, known[row.field].what)
		if v.Type() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
	return fs
}

// listFlags returns the list of flags for Config.Flags.
func (fs flagSet) listFlags() (out []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		switch row := fs.rows[f.Name]; {
		case row.field == "":
		case row.field == "staticPodURLHeader" && f.Value.String() != "":
			out = append(out, f.Name+"=CLASSIFIED")
		default:
			out = append(out, f.Name+"="+f.Value.String())
		}
	})
	slices.Sort(out)
	return out
}

// ignoredValue is the value of a flag without effect.
type ignoredValue struct{}

func (ignoredValue) String() string   { return "" }
func (ignoredValue) Set(string) error { return nil }
func (ignoredValue) Type() string     { return "" }

// parse parses the command line into the bound settings.
func (fs flagSet) parse(args []string) error {
	var given []string
	for _, a := range args {
		if a != "" { // systemd passes an empty argument for each empty "${VARIABLE}"
			given = append(given, a)
		}
	}
	ask := fs.VarPF(&versionValue{}, "version", "", "print the version (raw: with details of the build) and exit")
	ask.NoOptDefVal = "true"
	err := fs.Parse(given)
	var unknown *pflag.NotExistError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return &InfoRequest{Text: "Usage:\n  islet agent [flags]\n  islet [flags]\n\n" +
			"Flags (the complete reference is docs/configuration.md):\n" + fs.FlagUsages()}
	case errors.As(err, &unknown):
		return fmt.Errorf("%w%s", err, fs.suggestFlag(unknown.GetSpecifiedName()))
	case err != nil:
		return err
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: the agent takes flags only", fs.Arg(0))
	}
	if text := ask.Value.(*versionValue).versionText(); text != "" {
		return &InfoRequest{Text: text, Version: true}
	}
	return nil
}

// suggestFlag returns a hint that names the most similar flag, or "" if none is similar enough.
func (fs flagSet) suggestFlag(name string) string {
	if slices.Contains(removedFlags(), name) {
		return "; Kubernetes " + KubernetesMinor + " removed it, and it had no effect in islet: leave it out"
	}
	best, at := "", 1+len(name)/3
	for _, row := range flagTable() {
		if d := spelling.Distance(name, row.name); d <= at && (best == "" || d < at) {
			best, at = row.name, d
		}
	}
	if best == "" {
		return "; see islet --help-flags"
	}
	return fmt.Sprintf("; did you mean --%s?", best)
}

// versionValue is the value of the flag --version.
type versionValue struct{ form string }

func (v *versionValue) String() string { return v.form }
func (v *versionValue) Type() string   { return "version" }

func (v *versionValue) Set(s string) error {
	if s == "raw" {
		v.form = s
		return nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true, false or raw")
	}
	v.form = ""
	if b {
		v.form = "true"
	}
	return nil
}

// versionText returns the output of --version. kubeadm parses the short form.
func (v *versionValue) versionText() string {
	switch v.form {
	case "true":
		return "Kubernetes " + KubernetesVersion + "\n"
	case "raw":
		return fmt.Sprintf("%#v\n", version.Info{ // the format of a kubelet
			Major: "1", Minor: strings.TrimPrefix(KubernetesMinor, "1."), GitVersion: KubernetesVersion,
			GoVersion: runtime.Version(), Compiler: runtime.Compiler,
			Platform: runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	return ""
}
