package translate

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEnvFileValue(t *testing.T) {
	for name, c := range map[string]struct{ text, want, err string }{
		"simple":                {text: "A='1'\n", want: "1"},
		"no newline at the end": {text: "A='1'", want: "1"},
		"windows":               {text: "B='0'\r\n\r\nA='1'\r\n", want: "1"},
		"the first counts":      {text: "A='1'\nA='2'\n", want: "1"},
		"comments and blanks":   {text: "# A='0'\n\n  \t\n  B='x' # A='0'\n\tA='1' # why\n", want: "1"},
		"lines":                 {text: "B='one\nA=no'\nA='two\nthree\n'", want: "two\nthree\n"},
		"literal value":         {text: `A='$B \n "x" # y = z'`, want: `$B \n "x" # y = z`},
		"no such key":           {text: "AA='1'\nB='A='\n"},
		"empty":                 {text: ""},
		"empty value":           {text: "A=''\n"},
		"value apart":           {text: "A= '1'\nA='2'"},
		"behind is not read":    {text: "A='1'\nB", want: "1"},
		"no =":                  {text: "\nexport\nA='1'", err: "line 2 has no ="},
		"no name":               {text: "='1'", err: "line 1 has no name"},
		"space before =":        {text: "A ='1'", err: "line 1 has a space before its ="},
		"no quotes":             {text: "B=\"1\"\nA='1'", err: "line 1 has a value that is not in single quotes"},
		"nothing":               {text: "A=\n", err: "line 1 has a value that is not in single quotes"},
		"open":                  {text: "B='1'\nA='1\nC=2\n", err: "line 2 opens a quote that is never closed"},
		"text behind":           {text: "B='1\n2'x\n", err: "line 2 has text behind the value"},
		"two values":            {text: "A='1''2'", err: "line 1 has text behind the value"},
		"line after lines":      {text: "B='1\n2'\nnothing", err: "line 3 has no ="},
	} {
		got, err := envFileValue(c.text, "A")
		if got != c.want || (c.err == "") != (err == nil) || err != nil && err.Error() != c.err {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.err)
		}
	}
}

// FuzzEnvFileValue checks that arbitrary text can be parsed. A returned value must be part of the text.
func FuzzEnvFileValue(f *testing.F) {
	f.Add("A='1'\n# x\nB='2\n3' # y\n", "B")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, err := envFileValue(text, key)
		if err == nil && value != "" && !strings.Contains(text, key+"='"+value+"'") {
			t.Errorf("%q has no %s=%q", text, key, value)
		}
	})
}

type envFiles map[string]string

func (f envFiles) EnvFile(_ *v1.Pod, volume, path string, _ int64) ([]byte, error) {
	text, ok := f[volume+"/"+path]
	switch {
	case text == "bad":
		return nil, errors.New("not a regular file")
	case !ok:
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func TestFileKeyRef(t *testing.T) {
	files := envFiles{"v/env": "A='1'\nEMPTY=''\n", "v/broken": "A", "v/fifo": "bad"}
	for name, c := range map[string]struct {
		ref  v1.FileKeySelector
		want string
		set  bool
		err  string
	}{
		"there":             {ref: v1.FileKeySelector{Path: "env", Key: "A"}, want: "1", set: true},
		"no key":            {ref: v1.FileKeySelector{Path: "env", Key: "B"}, err: `environment variable X: environment variable key "B" not found in file "env" of volume "v"`},
		"empty":             {ref: v1.FileKeySelector{Path: "env", Key: "EMPTY"}, err: "not found"},
		"optional key":      {ref: v1.FileKeySelector{Path: "env", Key: "B", Optional: new(true)}},
		"no file":           {ref: v1.FileKeySelector{Path: "none", Key: "A"}, err: "file does not exist"},
		"optional file":     {ref: v1.FileKeySelector{Path: "none", Key: "A", Optional: new(true)}},
		"broken":            {ref: v1.FileKeySelector{Path: "broken", Key: "A", Optional: new(true)}, err: `couldn't parse env file "broken" of volume "v": line 1 has no =`},
		"not a file at all": {ref: v1.FileKeySelector{Path: "fifo", Key: "A", Optional: new(true)}, err: "not a regular file"},
	} {
		c.ref.VolumeName = "v"
		ctr := &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{FileKeyRef: &c.ref}}, {Name: "Y", Value: "[$(X)]"}}}
		e, err := buildEnvironment(&v1.Pod{}, ctr, Node{}, NoObjects{}, files)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, set := e.values["X"]
		y := "[$(X)]"
		if c.set {
			y = "[1]"
		}
		if got != c.want || set != c.set || e.values["Y"] != y {
			t.Errorf("%s: %q, %v, Y=%s", name, got, set, e.values["Y"])
		}
	}
}
