package unitfile

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestSettings(t *testing.T) {
	got := Settings("# comment\nA=0\n[Kube]\nYaml = a \\\n b\n; x\nno assignment\n[Install]\nWantedBy=\n")
	if want := []Setting{{"", "A", "0"}, {"Kube", "Yaml", "a   b"}, {"Install", "WantedBy", ""}}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestText checks that a large file is read in part, and that a name may begin with a slash.
func TestText(t *testing.T) {
	host := fstest.MapFS{"etc/a": {Data: []byte(strings.Repeat("x", MaxFile+1))}}
	if n := len(Text(host, "/etc/a")); n != MaxFile {
		t.Errorf("%d bytes", n)
	}
	if Text(host, "etc/b") != "" {
		t.Error("a missing file has a text")
	}
}
