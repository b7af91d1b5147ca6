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
)

// KubernetesVersion is the kubelet's that islet stands in for.
const KubernetesVersion = "v1.36.3"

// KubernetesMinor is the release that probes and hooks name to the servers they call.
const KubernetesMinor = "1.36"

const previousVersion = "1.35" // the minor version before it

// settings is all that flags can set; its JSON paths name the fields in the
// tables.
type settings struct {
	kubelet.KubeletConfiguration `json:",inline"`

	Edge  EdgeConfiguration `json:"edge"`
	Flags options           `json:"flags"`
}

// options are what only the command line can say.
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

func defaultOptions() options {
	return options{
		RootDir:             "/var/lib/kubelet",
		StateDir:            "/var/lib/islet",
		RunDir:              "/run/islet",
		MaxDeadPerContainer: 1,
		MaxDeadContainers:   -1,
	}
}

// Asked is the error of Load when the command line asks for a text instead of a
// run: --help and --version. It is not a failure: print it and end.
type Asked struct {
	Text    string
	Version bool // Text is the version of the kubelet that this stands for
}

// Error is the text.
func (a *Asked) Error() string { return a.Text }

// A flagSet is the command line bound to settings.
type flagSet struct {
	*pflag.FlagSet
	rows map[string]flagRow // by name
}

func newFlagSet(s *settings) flagSet {
	fs := flagSet{pflag.NewFlagSet("islet", pflag.ContinueOnError), map[string]flagRow{}}
	known := fields()
	fs.SortFlags = false
	fs.Usage = func() {}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	for _, row := range flagTable() {
		fs.rows[row.name] = row
		if row.field == "" {
			f := fs.VarPF(ignored{}, row.name, "", "")
			f.Hidden = true
			if row.bare {
				f.NoOptDefVal = "true"
			}
			continue
		}
		v := &value{field: fieldAt(reflect.ValueOf(s).Elem(), row.field)}
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

// values are those of all flags with an effect, as Config.Flags gives them.
func (fs flagSet) values() (out []string) {
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

// ignored is the value of a flag without effect.
type ignored struct{}

func (ignored) String() string   { return "" }
func (ignored) Set(string) error { return nil }
func (ignored) Type() string     { return "" }

// parse reads the command line into the settings that the set is bound to.
func (fs flagSet) parse(args []string) error {
	var given []string
	for _, a := range args {
		if a != "" { // systemd passes one for each "${VARIABLE}" that is empty
			given = append(given, a)
		}
	}
	ask := fs.VarPF(&askVersion{}, "version", "", "print the version (raw: all about the build) and end")
	ask.NoOptDefVal = "true"
	err := fs.Parse(given)
	var unknown *pflag.NotExistError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return &Asked{Text: "Usage:\n  islet agent [flags]\n  islet [flags]\n\nFlags (the whole reference is docs/configuration.md):\n" + fs.FlagUsages()}
	case errors.As(err, &unknown):
		return fmt.Errorf("%w%s", err, fs.suggest(unknown.GetSpecifiedName()))
	case err != nil:
		return err
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: the agent takes flags only", fs.Arg(0))
	}
	if text := ask.Value.(*askVersion).text(); text != "" {
		return &Asked{Text: text, Version: true}
	}
	return nil
}

// suggest names the flag nearest to an unknown one, if one is near.
func (fs flagSet) suggest(name string) string {
	best, at := "", 1+len(name)/3
	for _, row := range flagTable() {
		if d := distance(name, row.name); d <= at && (best == "" || d < at) {
			best, at = row.name, d
		}
	}
	if best == "" {
		return "; see islet --help-flags"
	}
	return fmt.Sprintf("; did you mean --%s?", best)
}

// distance is the number of letters to insert, remove or replace to make a
// into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// askVersion is the value of --version.
type askVersion struct{ form string }

func (v *askVersion) String() string { return v.form }
func (v *askVersion) Type() string   { return "version" }

func (v *askVersion) Set(s string) error {
	if s == "raw" {
		v.form = s
		return nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true, false or raw")
	}
	if v.form = ""; b {
		v.form = "true"
	}
	return nil
}

// text is what --version prints: kubeadm parses the short form.
func (v *askVersion) text() string {
	switch v.form {
	case "true":
		return "Kubernetes " + KubernetesVersion + "\n"
	case "raw":
		return fmt.Sprintf("%#v\n", version.Info{ // as a kubelet prints it
			Major: "1", Minor: "36", GitVersion: KubernetesVersion,
			GoVersion: runtime.Version(), Compiler: runtime.Compiler,
			Platform: runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	return ""
}
