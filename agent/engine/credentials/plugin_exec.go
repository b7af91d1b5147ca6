package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	kjson "sigs.k8s.io/json"

	"github.com/islet-edge/islet/internal/inputweight"
)

// Limits of a plugin's resources.
const (
	callTimeout = time.Minute // a kubelet's
	answerLimit = 256 << 10   // bytes

	answerMemory = 4 << 20     // maximum size of the decoded response
	stderrLimit  = 1 << 10     // maximum number of bytes of stderr that are reported
	pipeDelay    = time.Second // time to wait for a child process of the plugin that keeps stdout or stderr open
)

// A plugin is a program that returns credentials.
type plugin struct {
	path       string
	apiVersion string
	args, env  []string
}

func newPlugin(dir string, p *configv1.CredentialProvider) plugin {
	out := plugin{path: filepath.Join(dir, p.Name), apiVersion: p.APIVersion, args: p.Args}
	for _, e := range p.Env {
		out.env = append(out.env, e.Name+"="+e.Value)
	}
	return out
}

// callProgram runs the program with a request and decodes its response. Its error contains no part of the response, which may
// be a credential.
func (p *plugin) callProgram(ctx context.Context, r credentialv1.CredentialProviderRequest) (
	*credentialv1.CredentialProviderResponse, error,
) {
	if err := checkProgram(p.path); err != nil {
		return nil, err
	}
	r.TypeMeta = metav1.TypeMeta{APIVersion: p.apiVersion, Kind: "CredentialProviderRequest"}
	request, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	out, err := p.run(ctx, request)
	if err != nil {
		return nil, err
	}
	return p.decode(out)
}

// checkProgram returns an error if users other than root and islet's own user could have changed the program.
func checkProgram(path string) error {
	dir, err := os.Stat(filepath.Dir(path))
	if err == nil {
		err = checkPermissions(filepath.Dir(path), dir)
	}
	if err != nil {
		return err
	}
	program, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", path)
	case err != nil:
		return err
	case program.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s is a symbolic link: replace it with the program itself", path)
	case !program.Mode().IsRegular() || program.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not an executable file", path)
	}
	return checkPermissions(path, program)
}

func checkPermissions(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is writable by other users: run chmod go-w", path)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to root", path, s.Uid)
	}
	return nil
}

// run runs the program and returns its output. The process group is killed when the program ends, exceeds its
// deadline or prints too much, and when this process ends.
func (p *plugin) run(ctx context.Context, request []byte) ([]byte, error) {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the program ends
	defer runtime.UnlockOSThread()
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	stdout := &bounded{limit: answerLimit, onFull: func() { kill(fmt.Errorf("it printed more than %d bytes", answerLimit)) }}
	stderr := &bounded{limit: stderrLimit}
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = pipeDelay
	group := func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.Cancel = group
	err := cmd.Start()
	if err == nil {
		// Otherwise the plugin would have the agent's OOM score, which protects the agent.
		_ = os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("0"), 0)
		waitExit(cmd.Process.Pid)
		_ = group() // kill the children that the program has left
		err = cmd.Wait()
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it did not answer within %s", callTimeout)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // the program succeeded, but its children kept the output open
		err = nil
	}
	if text := stderr.oneLine(); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return stdout.data, err
}

// waitExit waits for the exit of a child without reaping it, so that its PID is not reused.
func waitExit(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// A bounded is a writer that stores only the first bytes that are written to it, at most limit. It must not implement
// io.ReaderFrom, because io.Copy would then bypass the limit.
type bounded struct {
	data   []byte
	limit  int
	onFull func() // called at the first byte beyond limit; may be nil
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.limit-len(b.data))
	b.data = append(b.data, p[:n]...)
	if n < len(p) && b.onFull != nil {
		b.onFull()
	}
	return len(p), nil
}

// oneLine returns the data as one line, for events and logs.
func (b *bounded) oneLine() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(b.data), "?")), " ")
}

// decode strictly decodes a response, which must have the version of the request. The versions have the same fields.
func (p *plugin) decode(out []byte) (*credentialv1.CredentialProviderResponse, error) {
	var r credentialv1.CredentialProviderResponse
	if err := inputweight.JSON(out, &r, answerMemory); err != nil {
		return nil, fmt.Errorf("its response %w", err)
	}
	strict, err := kjson.UnmarshalStrict(out, &r)
	switch {
	case err != nil || len(strict) > 0:
		return nil, errors.New("its response is not the JSON of a CredentialProviderResponse")
	case r.Kind != "CredentialProviderResponse" || r.APIVersion != p.apiVersion:
		return nil, fmt.Errorf("its response is not a CredentialProviderResponse of the requested version %s", p.apiVersion)
	}
	switch r.CacheKeyType {
	case credentialv1.ImagePluginCacheKeyType, credentialv1.RegistryPluginCacheKeyType, credentialv1.GlobalPluginCacheKeyType:
		return &r, nil
	}
	return nil, errors.New("cacheKeyType of its response is not one of Image, Registry, Global")
}
