package taskshim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/islet-edge/islet/internal/capped"
	"github.com/islet-edge/islet/internal/inherit"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// Namespace is containerd's namespace for all containers of this node.
const Namespace = "k8s.io"

const (
	// StateFile is the name of the file with the state of a shim, in the bundle of its sandbox. It
	// is written before the shim is started, so that a later process of the agent can end the shim.
	StateFile = "taskshim.json"
	// commandTimeout is the timeout of a command of the shim program, which may boot a virtual
	// machine.
	commandTimeout = 2 * time.Minute

	// RunTimeout is how long a shim may take to create and start a container, which may boot a virtual machine. It is the default timeout
	// of a kubelet for RunPodSandbox, which is twice runtimeRequestTimeout.
	RunTimeout = 4 * time.Minute
	// killTimeout is how long Kill waits for the answer of a shim. It is shorter than the timeout of a stop of the agent, which is the
	// grace period and two minutes.
	killTimeout = 90 * time.Second
	// streamsTimeout is how long islet's own shim may take to write the last output of a container to the log, which is on a disk.
	streamsTimeout = time.Minute
	// maxSocket is the maximum length of a unix socket's path.
	maxSocket = 107
)

// ErrGone is returned if the shim is not running.
var ErrGone = fmt.Errorf("the connection to the containerd shim is closed: %w", errdefs.ErrUnavailable)

// A state is the content of StateFile.
type state struct {
	Program string `json:"program"`
	Config  string `json:"config,omitempty"`
	Address string `json:"address,omitempty"` // unix socket for ttrpc; empty before the start
	Version int    `json:"version,omitempty"` // version of the task API, 2 or 3
	PID     int    `json:"pid,omitempty"`     // 0 if it was not reported
}

func (s *Shim) statePath() string { return filepath.Join(s.c.Bundles, s.c.ID, StateFile) }

// Start starts the shim in the sandbox's bundle and connects to it. The bundle must contain
// config.json.
func (s *Shim) Start(ctx context.Context) error {
	st := state{Program: s.c.Program, Config: s.c.ConfigFile}
	if err := s.saveState(st); err != nil {
		return err
	}
	return s.start(ctx, st)
}

// start runs the start command of the shim program and connects to the shim. If the shim is already
// running, the command prints the address of the running shim.
func (s *Shim) start(ctx context.Context, st state) error {
	params := &bootapi.BootstrapParams{
		InstanceID: s.c.ID, Namespace: Namespace, LogLevel: bootapi.LogLevel_LOG_LEVEL_WARN,
		ContainerdGrpcAddress: s.grpcAddress(), ContainerdTtrpcAddress: s.c.Events, ContainerdBinary: ownProgram(), SocketDir: &s.c.Sockets,
	}
	if err := params.AddExtension(s.runtimeOptions()); err != nil {
		return err
	}
	b, err := proto.Marshal(params)
	if err != nil {
		return err
	}
	// The input is a file and not a pipe, because a shim must not read partial input if this process is killed.
	path := filepath.Join(s.c.Bundles, s.c.ID, "bootstrap.pb")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := s.copyLog(); err != nil {
		return err
	}
	out, err := s.runShimCommand(ctx, s.c.ID, "start", in)
	if err != nil {
		return err
	}
	if st.Address, st.Version, err = parseStart(out); err != nil {
		return fmt.Errorf("start %s: %w", s.c.Program, err)
	}
	if err := s.saveState(st); err != nil {
		return err
	}
	if err := s.connect(ctx, st); err != nil {
		return err
	}
	var who task.ConnectResponse // only for the PID; the container does not exist yet
	if err := s.call(ctx, "Connect", &task.ConnectRequest{ID: s.c.ID}, &who); err != nil {
		s.c.Logger.Debug("a containerd shim does not report its PID", "sandbox", s.c.ID, "error", err)
	}
	st.PID = int(who.ShimPid)
	s.mu.Lock()
	s.pid = st.PID
	s.mu.Unlock()
	return s.saveState(st)
}

// kill kills the process of the shim if it is still running. The PID may have been reused, so it
// first checks that the command line contains the ID of the sandbox.
func (s *Shim) kill() {
	s.mu.Lock()
	pid := s.pid
	s.mu.Unlock()
	if pid <= 1 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	b, err := regular.Read(fmt.Sprintf("/proc/%d/cmdline", pid), 64<<10) // a command line may have any length
	if err != nil || !bytes.Contains(b, []byte(s.c.ID)) {
		return
	}
	s.c.Logger.Warn("a containerd shim does not respond and is killed", "sandbox", s.c.ID, "pid", pid)
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// Abandon kills a shim that does not respond, and closes the connection. Config.Gone is then called, unless Close was called before.
func (s *Shim) Abandon() {
	s.kill()
	s.mu.Lock()
	client, gone := s.client, s.gone
	s.mu.Unlock()
	if client != nil {
		client.Close()
		<-gone
	}
}

// Load connects to the shim of an earlier process of the agent, which is described by StateFile.
// The error is fs.ErrNotExist if the file does not exist, and ErrGone if no process listens at the shim's socket.
func (s *Shim) Load(ctx context.Context) error {
	b, err := os.ReadFile(s.statePath())
	if err != nil {
		return err
	}
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return fmt.Errorf("read %s: %w", s.statePath(), err)
	}
	s.c.Program, s.c.ConfigFile, s.pid = st.Program, st.Config, st.PID
	if st.Address == "" { // the earlier process ended before it stored the address
		return s.start(ctx, st)
	}
	if err := s.copyLog(); err != nil {
		return err
	}
	if err := s.connect(ctx, st); err != nil {
		s.Close()
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", err, ErrGone)
		}
		return err
	}
	return nil
}

func (s *Shim) saveState(st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	tmp := s.statePath() + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, s.statePath())
}

func (s *Shim) connect(ctx context.Context, st state) error {
	path, err := socketPath(st.Address)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("connect to containerd shim: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = make(chan struct{})
	s.socket, s.service = path, fmt.Sprintf("containerd.task.v%d.Task", st.Version)
	s.client = ttrpc.NewClient(conn, ttrpc.WithOnClose(s.handleDisconnect))
	return nil
}

// parseStart parses the output of the start command: a protobuf message (since containerd 2.3),
// JSON (since 1.7) or only the address.
func parseStart(out []byte) (address string, version int, err error) {
	var r bootapi.BootstrapResult
	text := bytes.TrimSpace(out)
	switch {
	case bytes.HasPrefix(text, []byte("{")):
		if err := json.Unmarshal(text, &r); err != nil {
			return "", 0, fmt.Errorf("its output is invalid: %w", err)
		}
	case bytes.HasPrefix(text, []byte("unix://")):
		r = bootapi.BootstrapResult{Version: 2, Protocol: "ttrpc", Address: string(text)}
	default:
		if err := proto.Unmarshal(out, &r); err != nil || r.Address == "" {
			return "", 0, fmt.Errorf("its output is invalid: %.100q", text)
		}
	}
	if !strings.EqualFold(r.Protocol, "ttrpc") || r.Version < 2 || r.Version > 3 {
		return "", 0, fmt.Errorf("it uses protocol %.20q, version %d; islet supports ttrpc, versions 2 and 3", r.Protocol, r.Version)
	}
	if _, err := socketPath(r.Address); err != nil {
		return "", 0, err
	}
	return r.Address, int(r.Version), nil
}

func socketPath(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok || !filepath.IsAbs(path) || len(path) > maxSocket {
		return "", fmt.Errorf("its address %.200q is not a unix socket", address)
	}
	return path, nil
}

// grpcAddress returns the path that shims receive as the path of containerd's socket. No file
// exists there. Shims derive the names of their sockets from this path.
func (s *Shim) grpcAddress() string { return filepath.Join(s.c.Sockets, "containerd.sock") }

func ownProgram() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return path
}

// runShimCommand runs the start or delete command of the shim program in the bundle of a container, and
// returns its stdout.
func (s *Shim) runShimCommand(ctx context.Context, id, action string, in *os.File) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	bundle := filepath.Join(s.c.Bundles, id)
	args := []string{"-namespace", Namespace, "-address", s.grpcAddress(), "-publish-binary", ownProgram(), "-id", id}
	if action == "delete" {
		args = append(args, "-bundle", bundle)
	}
	cmd := exec.CommandContext(ctx, s.c.Program, append(args, action)...)
	cmd.Dir = bundle
	cmd.Env = append(shim.Environ(), "GOMAXPROCS=2", "MAX_SHIM_VERSION=3",
		"TTRPC_ADDRESS="+s.c.Events, "GRPC_ADDRESS="+s.grpcAddress(), "NAMESPACE="+Namespace)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // the shim may keep the streams open
	if in != nil {
		cmd.Stdin = in
	}
	out, errs := &capped.Buffer{Max: maxShimOutput}, &capped.Buffer{Max: maxShimOutput}
	cmd.Stdout, cmd.Stderr = out, errs
	err := inherit.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", s.c.Program, action, err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// maxShimOutput is the number of bytes that are kept of the output of a shim program.
const maxShimOutput = 64 << 10

// Discard kills and removes a container. If the shim is not running, it runs the delete command of
// the shim program. It is not an error if the shim does not have the container.
func (s *Shim) Discard(ctx context.Context, id string) error {
	if _, err := os.Stat(s.createdPath(id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if s.Connected() {
		if s.IsStarting(id) { // it has exceeded RunTimeout, so the shim may not respond
			defer s.LimitStart(id, func() bool { return true }).Stop()
		}
		_, err := s.awaitState(ctx, id)
		if err == nil {
			err = s.Kill(ctx, wire.KillRequest{ID: id, Signal: int(unix.SIGKILL), All: true})
		}
		if err == nil {
			err = s.DeleteEnded(ctx, id)
		}
		if !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) {
			return err
		}
	}
	// Either the shim has died, or the connection ended while the shim created the container.
	if _, err := s.runShimCommand(ctx, id, "delete", nil); err != nil {
		return err
	}
	s.letGo(ctx, id)
	if err := os.Remove(s.createdPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
