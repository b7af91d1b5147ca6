package cli

import (
	"bytes"
	"testing"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	var tab table
	tab.addRow("NAME", "STATE")
	tab.addRow("日本", "up")
	tab.addRow("e\u0301te\u0301", "down")
	tab.addRow("evil\x1b[2J\n", "x\ty")
	tab.print(&b)
	tab.addRow("a", "later")
	tab.print(&b)
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
