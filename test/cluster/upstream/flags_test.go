package upstream

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
)

// These files contain a kubelet's flags and the defaults of its configuration for internal/config. The flag -update writes them.
const (
	flagsFile    = "../../../internal/config/testdata/flags-1.37.txt"
	defaultsFile = "../../../internal/config/testdata/defaults-1.37.json"
)

// TestFlags checks that internal/config knows the flags that a kubelet registers.
func TestFlags(t *testing.T) {
	server, err := options.NewKubeletServer()
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	server.AddFlags(fs)
	options.AddGlobalFlags(fs)
	names := []string{"help"}
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	compare(t, flagsFile, strings.Join(slices.Compact(names), "\n")+"\n")
}

// TestDefaults checks that internal/config has a kubelet's defaults.
func TestDefaults(t *testing.T) {
	s, _, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		t.Fatal(err)
	}
	k := &kubeletv1beta1.KubeletConfiguration{}
	s.Default(k)
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, defaultsFile, string(text)+"\n")
}

// compare checks that a file contains a text, or writes the text with -update.
func compare(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != text {
		t.Errorf("%s differs from a kubelet (%v): go test ./upstream -update\n%s", file, err, text)
	}
}
