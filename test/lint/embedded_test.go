package main

import (
	"strings"
	"testing"
)

func TestCheckEmbedded(t *testing.T) {
	const write, read = "func (b *b) Write(p []byte) (int, error) { return 0, nil }", "func (b *b) ReadFrom(r io.Reader) (int64, error) { return 0, nil }"
	for name, c := range map[string]struct {
		body, want string
	}{
		"an embedded buffer":   {"type b struct{ bytes.Buffer }\n" + write, "a.go:2: io.Copy calls ReadFrom of the embedded bytes.Buffer instead of Write"},
		"an embedded pointer":  {"type b struct {\nx int\n*os.File\n}\n" + write, "a.go:4: io.Copy calls ReadFrom of the embedded os.File instead of Write"},
		"a named field":        {"type b struct{ b bytes.Buffer }\n" + write, ""},
		"no method Write":      {"type b struct{ bytes.Buffer }\nfunc (b *b) Close() {}", ""},
		"its own ReadFrom":     {"type b struct{ bytes.Buffer }\n" + write + "\n" + read, ""},
		"a Builder":            {"type b struct{ strings.Builder }\n" + write, ""},
		"Write of another one": {"type b struct{ bytes.Buffer }\nfunc (c *c) Write(p []byte) (int, error) { return 0, nil }", ""},
	} {
		got, err := check("a.go", []byte("package a\n"+c.body+"\n"))
		if err != nil {
			t.Fatal(name, err)
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: violations %q, want %q", name, got, c.want)
		}
	}
}
