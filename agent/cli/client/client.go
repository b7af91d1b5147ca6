package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 90 * time.Second // timeout for a whole response
)

// MaxMessage is the maximum size of an error message.
const MaxMessage = 64 << 10

// Dial connects to the agent's socket.
func Dial(ctx context.Context, t *command.Tool) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", t.Socket)
}

// Dialer returns Dial as the DialContext of an http.Transport.
func Dialer(t *command.Tool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, t) }
}

// Request sends a request and returns the response, whose body the caller must close. If the status is not a success,
// it returns an error with the agent's message.
func Request(ctx context.Context, t *command.Tool, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "islet", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(api.TrailerError, "trailer")
	client := http.Client{Transport: &http.Transport{DialContext: Dialer(t), DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true, ResponseHeaderTimeout: ResponseTimeout(t, method)}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, cancelledError(ctx, t, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, Refusal(resp)
}

// Refusal returns the error that an unsuccessful response contains. It preserves the lines of the message, for
// example one line for each invalid field.
func Refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, MaxMessage))
	err := errors.New(terminal.IndentLines(string(text)))
	if resp.StatusCode == http.StatusNotFound {
		return command.ExitWith(command.ExitNotFound, err)
	}
	return err
}

// A deniedError is the error for a socket to which this user may not connect.
type deniedError string

func (e deniedError) Error() string {
	return fmt.Sprintf("no permission to connect to the agent at %s: use sudo", string(e))
}

// Unwrap returns fs.ErrPermission.
func (deniedError) Unwrap() error { return fs.ErrPermission }

// Unreachable returns the error for an agent that did not respond, with advice.
func Unreachable(t *command.Tool, err error) error {
	var timeout net.Error
	var dialing *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fs.ErrPermission):
		err = deniedError(t.Socket)
	case errors.As(err, &dialing) && dialing.Op == "dial", errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("cannot reach the agent at %s: is it running? (systemctl status islet)", t.Socket)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("the agent at %s does not answer: it hangs, or is very busy; see its log (journalctl -u islet)", t.Socket)
	default:
		err = connectionLostError(t, err)
	}
	return command.ExitWith(command.ExitUnreachable, err)
}

// cancelledError returns the error of a request that a watchdog may have cancelled. The error contains the same advice as
// the error of Unreachable.
func cancelledError(ctx context.Context, t *command.Tool, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		err = context.DeadlineExceeded
	}
	return Unreachable(t, err)
}

// connectionLostError returns the error for an incomplete response.
func connectionLostError(t *command.Tool, err error) error {
	return fmt.Errorf("lost the connection to the agent at %s: did it stop or restart? (%w)", t.Socket, err)
}

// Call sends a request and decodes the response into the variable out.
func Call(ctx context.Context, t *command.Tool, method, path string, query url.Values, body io.Reader, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return callSlow(ctx, t, method, path, query, body, out)
}

// callSlow is like call, without a timeout.
func callSlow(ctx context.Context, t *command.Tool, method, path string, query url.Values, body io.Reader, out any) error {
	resp, err := Request(ctx, t, method, path, query, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return Unreachable(t, err)
	}
	return nil
}

// Stream sends a request whose response has one JSON value per line. It calls the function handle for each value, until
// the function returns true or an error. It times out if the agent neither sends data nor reads the body of the request
// for too long.
func Stream[T any](ctx context.Context, t *command.Tool, method, path string, query url.Values, body io.Reader,
	handle func(T) (stop bool, err error)) error {
	ctx, dog, cancel := newWatchdog(ctx, t)
	defer cancel()
	if body != nil {
		body = io.NopCloser(upload{body, dog})
	}
	resp, err := Request(ctx, t, method, path, query, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = readValues(t, responseBody{resp.Body, dog}, handle)
	if errors.Is(context.Cause(ctx), errSilent) {
		return Unreachable(t, context.DeadlineExceeded)
	}
	return err
}

// Get sends a GET request with Call.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func Get(ctx context.Context, t *command.Tool, path string, out any) error {
	return Call(ctx, t, http.MethodGet, path, nil, nil, out)
}

// readValues reads JSON values. It calls the function handle for each value, until the function returns true or an
// error.
func readValues[T any](t *command.Tool, body io.Reader, handle func(T) (stop bool, err error)) error {
	for dec := json.NewDecoder(body); ; {
		var v T
		if err := dec.Decode(&v); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Unreachable(t, err)
		}
		if stop, err := handle(v); stop || err != nil {
			return err
		}
	}
}

// A readError is an error of reading a response. An error of writing the output has another type.
type readError struct{ err error }

func (e readError) Error() string { return e.err.Error() }

type readErrorTagger struct{ r io.Reader }

func (t readErrorTagger) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = readError{err}
	}
	return n, err
}

// CopyAnswer copies a response's body to the output.
func CopyAnswer(t *command.Tool, w io.Writer, body io.Reader) error {
	_, err := io.Copy(w, readErrorTagger{body})
	var from readError
	if errors.As(err, &from) {
		return Unreachable(t, from.err)
	}
	return err
}
