package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		want []span
	}{
		"plain":             {"a b", []span{{"a b", ""}}},
		"colour":            {"a \x1b[32mRunning\x1b[0m b", []span{{"a ", ""}, {"Running", "g"}, {" b", ""}}},
		"several at once":   {"\x1b[1;31mno", []span{{"no", "r"}}},
		"other sequences":   {"\x1b[2Ka\x1b[10Cb", []span{{"a", ""}, {"b", ""}}},
		"end in the middle": {"a\x1b[3", []span{{"a", ""}}},
		"control letters":   {"a\x00\x07b\x1bc", []span{{"abc", ""}}},
		"nothing":           {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(test.line)
			if len(got) != len(test.want) {
				t.Fatalf("%q, want %q", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("%q, want %q", got, test.want)
				}
			}
		})
	}
}

// TestRun draws hostile text: the picture is well-formed XML with all of its text.
func TestRun(t *testing.T) {
	to := filepath.Join(t.TempDir(), "picture.svg")
	const text = "$ islet <status> & \"more\"\r\n\x1b[33mwarning\x1b[0m </text><script>\n\n\xff\xfe end\n"
	if err := run(strings.NewReader(text), to, "a <title>"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	d := xml.NewDecoder(strings.NewReader(string(data)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		switch x := token.(type) {
		case xml.CharData:
			all.Write(x)
		case xml.StartElement:
			if x.Name.Local == "script" {
				t.Error("the text became an element")
			}
		}
	}
	for _, want := range []string{"a <title>", `$ islet <status> & "more"`, "warning </text><script>", " end"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is missing in\n%s", want, all.String())
		}
	}
}

func TestLimits(t *testing.T) {
	for name, text := range map[string]string{
		"lines":   strings.Repeat("a\n", maxLines+1),
		"columns": strings.Repeat("a", maxColumns+1),
	} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := run(strings.NewReader("a"), "", ""); err == nil {
		t.Error("no file: no error")
	}
}
