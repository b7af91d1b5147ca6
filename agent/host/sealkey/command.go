package sealkey

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/internal/regular"
)

// An Env contains the standard files of the commands, and the function that reads the configuration.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Load returns the configuration of an agent that is started with the given flags.
	Load func(args []string) (*config.Config, []config.Notice, error)
}

// Main runs a command. The first argument is recipient, seal, status or unseal. The flags of the command follow, and the flags of the
// agent, which say where the key is. Main returns the exit code: 1 for a failure, and 2 for wrong arguments.
func Main(args []string, env Env) int {
	return hostcommand.Report(env.Stderr, "key", env.run(args))
}

func (env Env) run(args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	cfg, _, err := env.Load(c.agent)
	if err != nil {
		return hostcommand.Usage(err)
	}
	if used, err := process.DirsUsed(cfg.Dirs); err != nil {
		return err
	} else if !used {
		return fmt.Errorf("no agent has run with %s yet: start it, or give the flags that it is started with", cfg.Dirs.State)
	}
	place := keyfile.Place{Dir: cfg.Dirs.State, TPM: cfg.Edge.TPM.Device, Policies: cfg.Edge.TPM.Policies}
	switch c.verb {
	case "status":
		return env.printStatus(place.Status(), place)
	case "recipient":
		return env.printRecipient(place, cfg.Dirs)
	}
	if err := checkDisk(cfg.Dirs.State); err != nil {
		return err
	}
	if c.recovery {
		if c.request.Recovery, err = ReadRecovery(env.Stdin, env.Stderr); err != nil {
			return fmt.Errorf("read the recovery key: %w", err)
		}
	}
	if c.verb == "unseal" {
		if err := place.Unseal(c.request); err != nil {
			return err
		}
		fmt.Fprintf(env.Stdout, "%s is plain again. Everybody who has the disk can read it.\n", place.Path())
		return nil
	}
	if !isTerminal(env.Stdout) {
		return hostcommand.Usage(errors.New(
			"islet key seal shows the recovery key, which must not get into a file or a log: run it on a terminal"))
	}
	c.request.Show = env.show
	c.request.LockOut = func() (func() error, error) {
		locks, err := process.Lock(cfg.Dirs.State, cfg.Dirs.Run)
		return locks.Close, err
	}
	if err := place.Seal(c.request); err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "%s is sealed to the TPM %s.\n", place.Path(), place.TPM)
	return nil
}

// checkDisk returns an error if changes of the state directory are lost at the next boot.
func checkDisk(state string) error {
	covered, err := volatile.IsCovered(state)
	if err == nil && covered {
		err = fmt.Errorf("the disk of %s takes no writes, so the key cannot be changed", state)
	}
	return err
}

// A call is a parsed command line.
type call struct {
	verb     string
	recovery bool
	request  keyfile.Request
	agent    []string // the flags of the agent
}

// parse parses the arguments of islet key. Every error is a wrong usage.
func parse(args []string) (c call, err error) {
	if len(args) == 0 || !slices.Contains([]string{"recipient", "seal", "status", "unseal"}, args[0]) {
		return c, hostcommand.Usage(errors.New("the first argument must be recipient, seal, status or unseal"))
	}
	c.verb = args[0]
	var own hostcommand.Flags
	if c.verb == "seal" || c.verb == "unseal" {
		own.Switch("--recovery", &c.recovery)
	}
	if c.verb == "seal" {
		own.Value("--pcrs", func(s string) (err error) { c.request.PCRs, err = parsePCRs(s); return err })
		own.Value("--policy-key", func(s string) (err error) { c.request.PolicyKey, err = readPolicyKey(s); return err })
	}
	c.agent, err = own.Take(args[1:])
	return c, err
}

func parsePCRs(text string) (pcrs []uint, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(field), 10, 8)
		if err != nil {
			return nil, fmt.Errorf("--pcrs: %q is not a list of numbers such as 7,11", text)
		}
		pcrs = append(pcrs, uint(n))
	}
	slices.Sort(pcrs)
	return slices.Compact(pcrs), nil
}

const maxPolicyKey = 4 << 10

func readPolicyKey(file string) ([]byte, error) {
	text, err := regular.Read(file, maxPolicyKey)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("%s is not a public key in PEM: openssl pkey -pubout makes one", file)
	}
	return block.Bytes, nil
}

// maxTyped is the maximum size of a typed recovery key in bytes.
const maxTyped = 256

// ReadRecovery reads the recovery key from a terminal, which does not show it, or from a pipe.
func ReadRecovery(stdin io.Reader, stderr io.Writer) (string, error) {
	f, ok := stdin.(*os.File)
	if ok && isTerminal(f) {
		fmt.Fprint(stderr, "Recovery key: ")
		defer fmt.Fprintln(stderr)
		typed, err := term.ReadPassword(int(f.Fd()))
		return string(typed), err
	}
	typed, err := io.ReadAll(io.LimitReader(stdin, maxTyped))
	if err == nil && len(strings.TrimSpace(string(typed))) == 0 {
		err = errors.New("it is empty: type it, or pass it on the standard input")
	}
	return string(typed), err
}

// show shows the recovery key, and waits until the person confirms that it is written down.
func (env Env) show(recovery string) error {
	_, err := fmt.Fprintf(env.Stdout, "The recovery key opens the key if the TPM is lost, cleared or replaced, or if the state of the "+
		"machine has changed.\nIt is shown only now. Write it down, and keep it away from this machine:\n\n    %s\n\n", recovery)
	if err != nil || !isTerminal(env.Stdin) {
		return err
	}
	if _, err := fmt.Fprint(env.Stdout, "Press Enter when it is written down, or Ctrl-C to change nothing. "); err != nil {
		return err
	}
	for b := []byte{0}; b[0] != '\n' && b[0] != '\r'; {
		if _, err := env.Stdin.Read(b); err != nil {
			return err
		}
	}
	return nil
}

func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
