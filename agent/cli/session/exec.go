package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/printable"
)

// execCommand implements islet exec and islet attach.
type execCommand struct {
	*command.Tool
	client.PodFlag
	name       string
	stdin, tty bool
	attach     bool
}

// Exec sets up islet exec.
func Exec(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &execCommand{Tool: t}
	c.flags(flags)
	return c.run
}

// Attach sets up islet attach.
func Attach(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &execCommand{Tool: t, attach: true}
	c.flags(flags)
	return c.run
}

func (c *execCommand) flags(flags *pflag.FlagSet) {
	c.Declare(flags)
	flags.StringVarP(&c.name, "container", "c", "", "the container (default: the first)")
	flags.BoolVarP(&c.stdin, "stdin", "i", false, "pass standard input to the process")
	flags.BoolVarP(&c.tty, "tty", "t", false, "use standard input as a terminal")
}

func (c *execCommand) run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		return command.Usage("exec needs a pod: see --help")
	case !c.attach && (len(args) == 1 || c.ArgsBeforeDash == 0):
		return command.Usage("exec needs a pod and a command: islet exec POD -- COMMAND")
	case !c.attach && c.ArgsBeforeDash > 1:
		return command.Usage("exec needs one pod before --, not %d", c.ArgsBeforeDash)
	case c.attach && len(args) > 1:
		return command.Usage("attach needs one pod")
	}
	pod, err := client.FindPod(ctx, c.Tool, c.PodFlag, args[0])
	if err != nil {
		return err
	}
	name, err := client.ChooseContainer(c.Tool, pod, c.name)
	if err != nil {
		return err
	}
	term := c.inputTerminal()
	verb := "exec"
	if c.attach {
		verb = "attach"
	}
	path := fmt.Sprintf("/%s/%s/%s/%s", verb, pod.Namespace, pod.Name, name)
	conn, err := c.connect(ctx, path, c.buildQuery(args[1:]))
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.attach && c.tty {
		fmt.Fprintln(c.Stderr, "If you see no prompt, press enter.")
	}
	return c.copyStreams(ctx, &socket{conn: conn}, term)
}

func (c *execCommand) buildQuery(command []string) url.Values {
	q := url.Values{"command": command, "output": {"1"}}
	if c.stdin {
		q.Set("input", "1")
	}
	if c.tty {
		q.Set("tty", "1")
	} else {
		q.Set("error", "1")
	}
	return q
}

// inputTerminal returns standard input if it is a terminal and -t is set. Otherwise it returns nil. If -t has no effect, inputTerminal
// says so and clears -t.
func (c *execCommand) inputTerminal() (term *terminal.TTY) {
	if !c.tty {
		return nil
	}
	if f, ok := c.Stdin.(*os.File); ok {
		term = terminal.Open(f)
	}
	if term == nil {
		fmt.Fprintln(c.Stderr, "Standard input is not a terminal: -t has no effect.")
		c.tty = false
	}
	return term
}

// connect opens the WebSocket.
func (c *execCommand) connect(ctx context.Context, path string, q url.Values) (*websocket.Conn, error) {
	d := websocket.Dialer{
		NetDialContext: client.Dialer(c.Tool), Subprotocols: []string{"v5.channel.k8s.io"},
		HandshakeTimeout: client.ResponseTimeout(c.Tool, http.MethodPost),
	}
	conn, resp, err := d.DialContext(ctx, "ws://islet"+path+"?"+q.Encode(), nil)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, websocket.ErrBadHandshake) && resp != nil:
		defer resp.Body.Close()
		return nil, client.Refusal(resp)
	}
	return nil, client.Unreachable(c.Tool, err)
}

// Channels of the WebSocket protocol v5.channel.k8s.io.
const (
	stdinChannel  = 0
	stdoutChannel = 1
	stderrChannel = 2
	statusChannel = 3
	resizeChannel = 4
	closeChannel  = 255
)

// copyStreams copies the streams until the process in the container has ended. It returns the process's exit code as an
// error.
func (c *execCommand) copyStreams(ctx context.Context, s *socket, term *terminal.TTY) error {
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	if term != nil {
		restore, err := term.SetRawMode()
		if err != nil {
			return fmt.Errorf("set up the terminal: %w", err)
		}
		defer restore()
		sizes, cancel := term.WatchSizes()
		defer cancel()
		go func() { // ends when sizes is closed
			for size := range sizes {
				data, _ := json.Marshal(size)
				s.send(resizeChannel, data)
			}
		}()
	}
	failed := make(chan error, 1)
	if c.stdin {
		go c.sendInput(s, failed) // ends with standard input; if a read of standard input blocks, it ends with this program
	}
	status, err := c.receiveOutput(s)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = exitCodeError(status)
	}
	select {
	case read := <-failed: // this error takes precedence over the result of the process
		return fmt.Errorf("standard input is incomplete: %w", read)
	default:
		return err
	}
}

// sendInput sends the data of standard input, and then the end of the input. If a read fails, sendInput first sends the
// error to the given channel, so that the process in the container sees the end of the input only after that.
func (c *execCommand) sendInput(s *socket, failed chan<- error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Stdin.Read(buf)
		if n > 0 && s.send(stdinChannel, buf[:n]) != nil {
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failed <- err
			}
			s.send(closeChannel, []byte{stdinChannel})
			return
		}
	}
}

// receiveOutput writes the output until the status arrives.
func (c *execCommand) receiveOutput(s *socket) (*metav1.Status, error) {
	var status *metav1.Status
	pings := make(chan string, 1)
	defer close(pings)
	go s.answerPings(pings)
	s.conn.SetPingHandler(func(data string) error {
		s.restartTimeout()
		select {
		case pings <- data:
		default: // another pong is pending
		}
		return nil
	})
	s.silence = cmp.Or(c.ResponseTimeout, client.SilenceTimeout)
	for {
		s.restartTimeout()
		_, m, err := s.conn.NextReader()
		if err != nil {
			if status == nil {
				return nil, client.Unreachable(c.Tool, err)
			}
			return status, nil
		}
		m = timedReader{m, s}
		var number [1]byte
		if _, err := io.ReadFull(m, number[:]); err != nil {
			continue
		}
		switch number[0] {
		case stdoutChannel:
			err = client.CopyAnswer(c.Tool, c.Out, m)
		case stderrChannel:
			err = client.CopyAnswer(c.Tool, c.Stderr, m)
		case statusChannel:
			status = &metav1.Status{}
			if json.NewDecoder(io.LimitReader(m, client.MaxMessage)).Decode(status) != nil {
				status = nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// exitCodeError converts a status to an exit code.
func exitCodeError(status *metav1.Status) error {
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); cause.Type == "ExitCode" && err == nil {
				return command.ExitWith(code, nil)
			}
		}
	}
	return errors.New(printable.Line(status.Message))
}

// A socket serializes messages of several goroutines.
type socket struct {
	conn    *websocket.Conn
	mu      sync.Mutex
	silence time.Duration // maximum time without a message of the agent, which also sends pings
}

// answerPings responds to pings without waiting for the reader. It ignores errors. The output of the container must still
// be read after the agent has disconnected, and while the agent is busy with input.
func (s *socket) answerPings(pings <-chan string) {
	for data := range pings {
		s.conn.WriteControl(websocket.PongMessage, []byte(data), time.Time{}) // an error means that the connection has ended
	}
}

// restartTimeout restarts the timeout for messages.
func (s *socket) restartTimeout() { s.conn.SetReadDeadline(time.Now().Add(s.silence)) }

// A timedReader restarts the timeout before each read of a message, so that the time between two reads does not
// count.
type timedReader struct {
	io.Reader
	s *socket
}

func (r timedReader) Read(b []byte) (int, error) {
	r.s.restartTimeout()
	return r.Reader.Read(b)
}

func (s *socket) send(number byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.conn.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	if _, err := m.Write(append([]byte{number}, data...)); err != nil {
		return err
	}
	return m.Close()
}
