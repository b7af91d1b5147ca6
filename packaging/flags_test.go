package packaging

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sourcing finds a command of a shell that reads a file with the flags of the service, and word splitting of such flags.
var sourcing = regexp.MustCompile(`(?m)(?:^|[\s;&|("'` + "`" + `])(?:\.|source) +(?:"?\$|/etc/(?:default|conf\.d|sysconfig)/)|\$(?:ISLET_ARGS|KUBELET_[A-Z]+_ARGS)`)

// TestOneReaderOfFlags checks that no script and no command of the documents reads the files with the flags of the service. systemd accepts
// a file that a shell reads in another way, or not at all. Only the service manager decides which flags apply, and islet reads the files
// in the same way. The units and the script of OpenRC belong to the service manager.
func TestOneReaderOfFlags(t *testing.T) {
	looked := 0
	for _, top := range []string{".", "../docs", "../agent/doctor/migrate"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			switch filepath.ToSlash(path) {
			case "openrc/islet.initd", "systemd/islet.service", "kubeadm/10-kubeadm.conf", "kubeadm/islet-cri.service":
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			looked++
			if found := sourcing.Find(text); found != nil {
				t.Errorf("%s reads the flags of the service itself (%q): use islet cleanup or islet setup without flags", path, found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 100 {
		t.Fatalf("only %d files were searched", looked)
	}
	for _, text := range []string{
		"\t[ ! -f \"$f\" ] || . \"$f\"\n",
		". /etc/default/islet; islet cleanup\n", "x=$(. /etc/conf.d/islet)", "islet setup $ISLET_ARGS",
	} {
		if !sourcing.MatchString(text) {
			t.Errorf("%q is not found", text)
		}
	}
}

// TestFlagsOfKubelet checks that both units in the kubelet's place read the flags of a kubelet from every file where its packages have
// them, and that the shipped files of settings replace none of these flags.
func TestFlagsOfKubelet(t *testing.T) {
	for _, unit := range []string{"kubeadm/10-kubeadm.conf", "kubeadm/islet-cri.service"} {
		var files []string
		for _, line := range linesOf(t, unit) {
			if file, ok := strings.CutPrefix(line, "EnvironmentFile=-"); ok && file != "/var/lib/kubelet/kubeadm-flags.env" {
				files = append(files, file)
			}
		}
		if want := []string{"/etc/sysconfig/kubelet", "/etc/default/kubelet"}; !slices.Equal(files, want) {
			t.Errorf("%s reads %q, want %q", unit, files, want)
		}
	}
	for _, name := range []string{"default/kubelet", "default/islet"} {
		for _, line := range linesOf(t, name) {
			if line != "" && line[0] != '#' {
				t.Errorf("%s sets %s", name, line)
			}
		}
	}
}

func linesOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}
