package ctrd

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/islet-edge/islet/runtime/cri"
)

// A lastInput is the input of a command. Before it returns io.EOF, it calls lose, which may be nil.
type lastInput struct{ lose func() }

func (l lastInput) Read([]byte) (int, error) {
	if l.lose != nil {
		l.lose()
	}
	return 0, io.EOF
}

// TestInputEnds checks that a command gets the end of its input from a client that has ended the input, and not from a client that was
// lost. The latter command is killed, possibly some time later.
func TestInputEnds(t *testing.T) {
	for _, lost := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		in := lastInput{}
		if lost {
			in.lose = cancel
		}
		saved := filepath.Join(t.TempDir(), "saved")
		cmd := exec.Command("sh", "-c", "cat && exec touch "+saved)
		watch := func() func() bool {
			return context.AfterFunc(ctx, func() { time.AfterFunc(300*time.Millisecond, func() { cmd.Process.Kill() }) })
		}
		err := runPipes(ctx, cmd, cri.ExecOptions{Stdin: in}, watch)
		cancel()
		if _, statErr := os.Stat(saved); (err != nil) != lost || (statErr != nil) != lost {
			t.Errorf("lost: %v: the command ended with %v, its file: %v", lost, err, statErr)
		}
	}
}
