package trial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ofBundle returns a configuration that a bundle contained. An empty text stands for the node's own files.
func ofBundle(text string) *Configuration {
	c := New(text, "", nil, Source{File: "bundle kiosk number 2", Bundle: "sha256:2"}, noon)
	c.Asked = true
	return c
}

// TestBundleDecides checks that the record of bundles decides about the configurations of bundles: an assigned one counts only while its
// bundle is on trial, and an abandoned one is replaced by the one before it. Other configurations stay.
func TestBundleDecides(t *testing.T) {
	x := ofBundle("x")
	onTrial := `{"trial":{"digest":"sha256:2"},"configurations":{"sha256:2":{"id":"` + x.ID + `"}}}`
	abandoned := `{"abandoned":"` + x.ID + `"}`
	assign := func(c *Configuration) func(*Record) { return func(r *Record) { r.takes(c, true) } }
	begin := func(r *Record) { r.Begin(Facts{}, "boot", noon) }
	accept := func(r *Record) { r.Accept(noon) }
	for name, c := range map[string]struct {
		life    []func(*Record)
		bundles string
		want    string // kubelet of the good, earlier and assigned configurations; the number of dropped ones
	}{
		"on trial":                  {[]func(*Record){assign(x), begin}, onTrial, "old|older|x+ 0"},
		"no record of bundles":      {[]func(*Record){assign(x)}, "", "old|older|- 1"},
		"a broken record":           {[]func(*Record){assign(x)}, "{", "old|older|- 1"},
		"another bundle":            {[]func(*Record){assign(x)}, strings.ReplaceAll(onTrial, x.ID, "y"), "old|older|- 1"},
		"reverted on trial":         {[]func(*Record){assign(x), begin}, abandoned, "old|older|- 1"},
		"accepted":                  {[]func(*Record){assign(x), begin, accept}, onTrial, "x|old|- 0"},
		"accepted and abandoned":    {[]func(*Record){assign(x), begin, accept}, abandoned, "old|older|- 1"},
		"an operator's":             {[]func(*Record){assign(asked("y"))}, abandoned, "old|older|y 0"},
		"an operator's, the same":   {[]func(*Record){assign(asked("x"))}, abandoned, "old|older|x 0"},
		"an operator's came later":  {[]func(*Record){assign(x), begin, accept, assign(asked("y")), begin, accept}, abandoned, "y|x|- 0"},
		"the node's own files":      {[]func(*Record){assign(ofBundle("")), begin, accept}, `{"abandoned":"local"}`, "old|older|- 1"},
		"the node's own files stay": {[]func(*Record){assign(ofBundle("")), begin, accept}, abandoned, "|old|- 0"},
	} {
		var r Record
		for _, f := range []func(*Record){assign(asked("older")), begin, accept, assign(asked("old")), begin, accept} {
			f(&r)
		}
		for _, f := range c.life {
			f(&r)
		}
		dir := t.TempDir()
		if err := Save(dir, r); err != nil {
			t.Fatal(err)
		}
		if c.bundles != "" {
			if err := os.WriteFile(filepath.Join(dir, BundleFile), []byte(c.bundles), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		text := func(c *Configuration) string {
			if c == nil {
				return ""
			}
			return c.Kubelet
		}
		got := text(read.Good) + "|" + text(read.Before) + "|"
		if read.Assigned == nil {
			got += "-"
		}
		got += text(read.Assigned)
		if read.Trial != nil {
			got += "+"
		}
		history := len(read.History)
		dropped := read.HasDropped(noon)
		got += " " + string(rune('0'+len(read.History)-history))
		if got != c.want || dropped == strings.HasSuffix(c.want, "0") {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		for _, o := range read.History[history:] {
			if !o.Withdrawn || !o.Undecided {
				t.Errorf("%s: %+v is not withdrawn", name, o)
			}
		}
		if read.HasDropped(noon) {
			t.Errorf("%s: dropped twice", name)
		}
		if err := Save(dir, read); err != nil {
			t.Fatal(err)
		}
		if again, err := Load(dir); err != nil || again.HasDropped(noon) {
			t.Errorf("%s: the stored record still differs: %v", name, err)
		}
	}
}

// TestAbandonedForConfigMap checks that a ConfigMap that waits for its trial is not tried any more when the node returns to the
// configuration of a bundle. It is offered again later.
func TestAbandonedForConfigMap(t *testing.T) {
	for name, c := range map[string]struct {
		first *Configuration
		want  bool // the ConfigMap is still assigned
	}{"a bundle's": {ofBundle("x"), false}, "an operator's": {asked("x"), true}} {
		var r Record
		for _, next := range []*Configuration{c.first, ofBundle("")} {
			r.takes(next, true)
			r.Begin(Facts{}, "", noon)
			r.Accept(noon)
		}
		r.takes(configMap("cm"), false)
		r.Abandon("local")
		if r.Good != c.first || (r.Assigned != nil) != c.want || (r.Followed != "") != c.want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestAbandonedForProgram checks that a program that is assigned when a bundle is given up is tried with the configuration before the
// bundle.
func TestAbandonedForProgram(t *testing.T) {
	var r Record
	for _, next := range []*Configuration{asked("x"), ofBundle("y")} {
		r.takes(next, true)
		r.Begin(Facts{}, "", noon)
		r.Accept(noon)
	}
	bundle := r.Good
	r.takes(WithProgram(bundle, Program{Version: "0.2.0", Sum: strings.Repeat("a", 64)}, Source{File: "/a"}, noon), true)
	r.Abandon(configurationName(bundle))
	if a := r.Assigned; a == nil || a.Program == nil || a.Kubelet != r.Good.Kubelet || a.Kubelet == bundle.Kubelet || !a.Asked {
		t.Errorf("%+v, the good one is %+v", a, r.Good)
	}
}
