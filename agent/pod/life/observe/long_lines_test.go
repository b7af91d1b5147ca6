package observe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// TestMessageOfLongLines checks that the message is the last maxMessageLog bytes of the last maxMessageLines lines of the log, as in a
// kubelet, whatever the lengths of the lines are.
func TestMessageOfLongLines(t *testing.T) {
	const header = "2026-01-01T00:00:00.123456789+00:00 stdout F "
	text := func(n int) string { // each part of the text is different
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, "{%d} ", i)
		}
		return b.String()[:n]
	}
	lengths := map[string][]int{"unsplit": {20 << 10}, "huge": {300 << 10}, "short lines after an unsplit line": {50000, 9, 9, 0, 9}}
	for _, n := range []int{0, 1, 2047, 2048, 8100, 8191, 8192, 12000, maxLogLine} {
		lengths[fmt.Sprint("one line of ", n)] = []int{n}
		lengths[fmt.Sprint("a long line, then one of ", n)] = []int{maxLogLine, n}
		lengths[fmt.Sprint("short lines, then one of ", n)] = []int{9, 9, 9, n}
		lengths[fmt.Sprint("one of ", n, ", then short lines")] = append([]int{maxLogLine, n}, make([]int, maxMessageLines-1)...)
		lengths[fmt.Sprint("one of ", n, ", then enough short lines")] = append([]int{n}, make([]int, maxMessageLines)...)
	}
	for n := range 60 { // the tail begins at each place in the beginning of a line
		lengths[fmt.Sprint("at ", n)] = []int{maxLogLine, 100, maxLogLine - 200 + n, 7800}
		lengths[fmt.Sprint("only one at ", n)] = []int{50, maxLogTail - len(header) - 1 + n - 30}
	}
	for name, lines := range lengths {
		var log, out strings.Builder
		for i, n := range lines {
			log.WriteString(header + text(n) + "\n")
			if i >= len(lines)-maxMessageLines {
				out.WriteString(text(n) + "\n")
			}
		}
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		st := &api.ContainerStatus{ExitCode: 1, LogPath: path, Annotations: map[string]string{keys.MessagePolicy: "FallbackToLogsOnError"}}
		want := out.String()[max(out.Len()-maxMessageLog, 0):]
		if got := terminationMessage("", st); got != want {
			t.Errorf("%s: %d bytes, want %d: %.60q, want %.60q", name, len(got), len(want), got, want)
		}
	}
	zeros := filepath.Join(t.TempDir(), "0.log")
	if err := errors.Join(os.WriteFile(zeros, nil, 0o600), os.Truncate(zeros, 1<<40)); err != nil {
		t.Fatal(err)
	}
	st := &api.ContainerStatus{ExitCode: 1, LogPath: zeros, Annotations: map[string]string{keys.MessagePolicy: "FallbackToLogsOnError"}}
	if got := terminationMessage("", st); got != "" {
		t.Errorf("a file of zeros: %q", got)
	}
}
