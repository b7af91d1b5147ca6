package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/islet-edge/islet/internal/capped"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/net/netns"
)

const (
	maxOutput     = 1 << 20           // maximum size of a plugin's result in bytes
	maxMemory     = 4 << 20           // maximum memory for the decoded result in bytes
	maxError      = 4 << 10           // maximum number of bytes of stderr in an error message
	pipeTimeout   = 5 * time.Second   // maximum time from the end of the context until the pipes are closed
	builtinPrefix = "islet-built-in:" // prefix of the paths that stand for built-in types
	programName   = "islet"           // name of this program's file
)

// Exec runs plugins for libcni. Built-in types run in this process. Other types run as executables in the node's network namespace. It
// implements invoke.Exec.
type Exec struct {
	version.PluginDecoder
	Host netns.NS
}

// FindInPath returns the path of a plugin type, for ExecPlugin. A built-in type has precedence over an executable with the same name, but
// ExecPlugin runs the executable if the built-in type does not support the configuration.
func (e *Exec) FindInPath(kind string, paths []string) (string, error) {
	if IsBuiltIn(kind) {
		return builtinPrefix + kind, nil
	}
	return findExecutable(kind, paths, func(string, os.FileInfo) bool { return true })
}

// FindInstalled returns the path of the executable of a plugin type that is not this program. The package islet-cni installs links to this
// program under the names of the built-in types.
func FindInstalled(kind string, paths []string) (string, error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	return findExecutable(kind, paths, func(path string, info os.FileInfo) bool {
		target, err := filepath.EvalSymlinks(path) // after an update, the link leads to another file than the program of this process
		return err == nil && filepath.Base(target) != programName && !os.SameFile(info, self)
	})
}

func findExecutable(kind string, paths []string, accepts func(path string, info os.FileInfo) bool) (string, error) {
	if kind == "" || kind != filepath.Base(kind) || strings.Trim(kind, ".") == "" {
		return "", fmt.Errorf("plugin type %q is not a file name", kind)
	}
	for _, dir := range paths {
		path := filepath.Join(dir, kind)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && accepts(path, info) {
			return path, nil
		}
	}
	return "", fmt.Errorf("plugin %q is not in %v: install it there", kind, paths)
}

// ExecPlugin runs one command and returns the plugin's output.
func (e *Exec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	kind, ok := strings.CutPrefix(path, builtinPrefix)
	if !ok {
		return e.runExecutable(ctx, path, stdin, environ)
	}
	env := map[string]string{}
	for _, v := range environ {
		key, value, _ := strings.Cut(v, "=")
		env[key] = value // the last value applies
	}
	if Validate(kind, stdin) != nil { // for the command VERSION, stdin has no other fields
		if program, err := FindInstalled(kind, filepath.SplitList(env["CNI_PATH"])); err == nil {
			return e.runExecutable(ctx, program, stdin, environ)
		}
	}
	if env["CNI_COMMAND"] == "VERSION" {
		var out bytes.Buffer
		err := supportedVersions().Encode(&out)
		return out.Bytes(), err
	}
	result, err := Run(ctx, kind, &Request{Command: env["CNI_COMMAND"], Host: e.Host, Exec: e, Args: &skel.CmdArgs{
		ContainerID: env["CNI_CONTAINERID"], Netns: env["CNI_NETNS"], IfName: env["CNI_IFNAME"],
		Args: env["CNI_ARGS"], Path: env["CNI_PATH"], StdinData: stdin,
	}})
	if err != nil || result == nil {
		return nil, err
	}
	return json.Marshal(result)
}

func (e *Exec) runExecutable(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, stderr := &capped.Buffer{Max: maxOutput}, &capped.Buffer{Max: maxError}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), out, stderr
	cmd.WaitDelay = pipeTimeout
	err := e.Host.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	name := filepath.Base(path)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s did not end in time: %w", name, ctx.Err())
	case err != nil:
		return nil, pluginError(name, err, out.Bytes(), stderr.String())
	case out.Truncated():
		return nil, fmt.Errorf("plugin %s wrote more than %d bytes", name, maxOutput)
	}
	// Limit the memory, because the library decodes the result several times, once for each CNI version.
	if err := inputweight.JSON(out.Bytes(), nil, maxMemory); err != nil {
		return nil, fmt.Errorf("the result of plugin %s %w", name, err)
	}
	return out.Bytes(), nil
}

// pluginError returns the error of a plugin: the JSON object that the specification requires, or else the text of stderr.
func pluginError(name string, err error, out []byte, stderr string) error {
	var pluginErr types.Error
	if json.Unmarshal(out, &pluginErr) == nil && pluginErr.Msg != "" {
		return &pluginErr
	}
	if text := strings.TrimSpace(stderr); text != "" {
		return fmt.Errorf("plugin %s: %w: %s", name, err, text)
	}
	return fmt.Errorf("plugin %s: %w", name, err)
}

// Main runs a plugin as an executable whose name is the plugin type. It returns the exit code.
func Main(kind string) int {
	run := func(command string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			result, err := Run(context.Background(), kind, &Request{Command: command, Args: args, Exec: &Exec{}})
			if err != nil || result == nil {
				return asTypes(err)
			}
			return result.PrintTo(os.Stdout)
		}
	}
	funcs := skel.CNIFuncs{Add: run("ADD"), Del: run("DEL"), Check: run("CHECK"), GC: run("GC"), Status: run("STATUS")}
	err := skel.PluginMainFuncsWithError(funcs, supportedVersions(), "islet's built-in CNI plugin "+kind)
	if err != nil {
		_ = err.Print() // to stdout, as the specification requires
		return 1
	}
	return 0
}

// asTypes unwraps a CNI error, because package skel prints only CNI errors.
func asTypes(err error) error {
	var coded *types.Error
	if errors.As(err, &coded) {
		return coded
	}
	return err
}
