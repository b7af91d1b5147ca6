package eventtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestJudge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.md")
	page := "# Events\n| Reason | Type | Text | By |\n|---|---|---|---|\n| Pulled | Normal | `Pulled \"<image>\" (<n> bytes).` | worker |\n| Killing | Normal | `Stopping` | worker |\n| Other | Warning | `o` | probe |\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, err := readRows(file)
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	pulled, killing := [3]string{"Normal", "Pulled", `Pulled "a" (3 bytes).`}, [3]string{"Normal", "Killing", "Stopping"}
	for _, tt := range []struct {
		noted [][3]string
		whole bool
		want  int
	}{
		{[][3]string{pulled, killing}, true, 0},
		{[][3]string{pulled}, true, 1},
		{[][3]string{pulled}, false, 0},
		{[][3]string{pulled, killing, {"Warning", "Pulled", pulled[2]}}, true, 1},
		{[][3]string{pulled, killing, {"Normal", "Pulled", pulled[2] + "\n"}}, true, 1},
		{[][3]string{pulled, killing, {"Normal", "Pulled", `Pulled "" (3 bytes).`}}, true, 1},
		{[][3]string{pulled, killing, {"Normal", "Kill", "Stopping"}}, true, 1},
	} {
		noted := map[[3]string]bool{}
		for _, n := range tt.noted {
			noted[n] = true
		}
		if got := compareRows(rows, "worker", noted, tt.whole); len(got) != tt.want {
			t.Error(fmt.Sprint(tt.noted), got)
		}
	}
	if rows, err := readRows(eventsPage()); err != nil || len(rows) < 40 {
		t.Error(len(rows), err)
	}
}
