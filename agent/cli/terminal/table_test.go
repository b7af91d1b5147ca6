package terminal

import (
	"bytes"
	"testing"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	var tab Table
	tab.AddRow("NAME", "STATE")
	tab.AddRow("日本", "up")
	tab.AddRow("e\u0301te\u0301", "down")
	tab.AddRow("evil\x1b[2J\n", "x\ty")
	tab.Print(&b)
	tab.AddRow("a", "later")
	tab.Print(&b)
	want := `NAME        STATE
日本        up
été         down
evil?[2J    x y
a           later
`
	want = string(bytes.ReplaceAll([]byte(want), []byte("été"), []byte("e\u0301te\u0301")))
	if b.String() != want {
		t.Errorf("got\n%s want\n%s", b.String(), want)
	}
}
