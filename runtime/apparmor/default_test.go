package apparmor

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDefault checks the text of the default profile. It contains its own name and the name of the agent's profile. It includes only files
// of AppArmor that exist. If apparmor_parser is installed, it must accept the text.
func TestDefault(t *testing.T) {
	dir := t.TempDir()
	label := filepath.Join(dir, "current")
	if got := inspectHost(dir, label); got != (settings{manager: "unconfined"}) {
		t.Errorf("a host without files: %+v", got)
	}
	for _, name := range []string{"abi/3.0", "tunables/global", "abstractions/base"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(label, []byte("islet-agent (enforce)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	full := inspectHost(dir, label)
	if full != (settings{true, true, true, "islet-agent"}) {
		t.Errorf("a host with all files: %+v", full)
	}
	bare := profileText("p", settings{manager: "unconfined"})
	if strings.Contains(bare, "#include") || strings.Contains(bare, "abi <") || !strings.Contains(bare, "@{PROC}=/proc/\nprofile p ") {
		t.Errorf("without files:\n%s", bare)
	}
	for _, want := range []string{"abi <abi/3.0>,\n", "#include <tunables/global>\n", "#include <abstractions/base>\n", "signal (receive) peer=islet-agent,\n", "deny mount,\n", "deny @{PROC}/kcore rwklx,\n"} {
		if !strings.Contains(profileText("p", full), want) {
			t.Errorf("no %q", want)
		}
	}
	parser, err := exec.LookPath("apparmor_parser")
	if err != nil {
		t.Log("apparmor_parser is not installed: the syntax was not checked")
		return
	}
	cmd := exec.Command(parser, "--skip-kernel-load", "--skip-cache")
	cmd.Stdin = strings.NewReader(profileText("p", inspectHost("/etc/apparmor.d", label)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestParse checks two failures of the parser. If it hangs, it is killed with its child processes. If it fails, the error contains its
// output.
func TestParse(t *testing.T) {
	dir := t.TempDir()
	script := func(text string) string {
		file := filepath.Join(dir, "parser")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if err := runParser(t.Context(), script("[ $1 = -Kr ] && [ \"$(cat)\" = text ]"), "text"); err != nil {
		t.Errorf("a parser that works: %v", err)
	}
	if err := runParser(t.Context(), script("echo line 1 is wrong; exit 3"), ""); err == nil ||
		!strings.Contains(err.Error(), "exit status 3: line 1 is wrong") {
		t.Errorf("a parser that fails: %v", err)
	}

	held := filepath.Join(dir, "held")
	if err := unix.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(held, os.O_RDWR, 0) // without a writer, os.Open below would block
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.SetReadDeadline(time.Now().Add(time.Minute))
	ctx, stop := context.WithCancelCause(t.Context())
	end := make(chan error, 1)
	go func() { end <- runParser(ctx, script("(echo runs >&3; sleep 600) 3>"+held+" & wait"), "") }()
	if _, err := io.ReadFull(in, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	late := errors.New("it is late")
	stop(late)
	if err := <-end; !errors.Is(err, late) {
		t.Errorf("a parser that hangs: %v", err)
	}
	if b, err := io.ReadAll(in); err != nil || len(b) > 0 {
		t.Errorf("the child process of the parser was not killed: %q, %v", b, err)
	}
}
