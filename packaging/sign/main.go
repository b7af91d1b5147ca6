// Command sign creates keys for signing islet's archives, and signs archives with them.
//
//	sign key FILE                          writes a new private key to FILE; prints the public key
//	sign public KEYFILE...                 prints the public keys of private keys, one a line
//	sign verify ARCHIVE KEYS               checks ARCHIVE by ARCHIVE.release, and prints which public keys in the file
//	                                       KEYS, one a line, have signed it. Fails if none has
//	sign release VERSION ARCH ARCHIVE KEYFILE...
//	                                       writes ARCHIVE.release, signed by each key
//	sign index INDEX PLAN KEYFILES ARCHIVE...
//	                                       begins the staged rollout of the archives' version: writes INDEX, which
//	                                       names the rings in the file PLAN. Separate several keys by colons
//	sign rollout INDEX [--nodes FILE] [--key KEYFILE]... [--pause REASON | --resume] [REPORT|DIR...]
//	                                       shows the rings, and the outcomes in reports of nodes. With a key, opens the
//	                                       next ring if its time has come, pauses if too many nodes have failed, and
//	                                       signs the index again before it expires. Without --nodes, a file with the
//	                                       public keys of nodes, it opens no ring and does not pause by itself. A pause,
//	                                       and reports that do not count, are warnings: the exit code is 0
//
// A private key is "islet-ed25519-private BASE64" in a file with mode 0600.
package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/signed"
)

const rolloutUsage = "sign rollout INDEX [--nodes FILE] [--key KEYFILE]... [--pause REASON | --resume] [REPORT|DIR...]"

const usage = `usage:
  sign key FILE
  sign public KEYFILE...
  sign verify ARCHIVE KEYS
  sign release VERSION ARCH ARCHIVE KEYFILE...
  sign index INDEX PLAN KEYFILES ARCHIVE...
  ` + rolloutUsage + `
sign rollout --help describes the flags`

func main() {
	if err := run(os.Args[1:], os.Stdout, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "sign:", err)
		if !errors.As(err, new(warning)) {
			os.Exit(1)
		}
	}
}

// A warning is something that a person should know, although the command has done its work.
type warning struct{ error }

func run(args []string, out io.Writer, now time.Time) error {
	switch {
	case len(args) > 0 && args[0] == "rollout":
		return runRollout(args[1:], out, now)
	case slices.ContainsFunc(args, isHelp):
		fmt.Fprintln(out, usage)
		return nil
	case len(args) == 2 && args[0] == "key":
		return makeKey(args[1], out)
	case len(args) >= 2 && args[0] == "public":
		return printPublic(args[1:], out)
	case len(args) == 3 && args[0] == "verify":
		return verifyRelease(args[1], args[2], out)
	case len(args) >= 5 && args[0] == "release":
		return signRelease(args[1], args[2], args[3], args[4:])
	case len(args) >= 5 && args[0] == "index":
		return signIndex(args[1], args[2], strings.Split(args[3], ":"), args[4:], out, now)
	}
	return errors.New(usage)
}

func isHelp(arg string) bool { return arg == "--help" || arg == "-h" }

func makeKey(file string, out io.Writer) error {
	public, err := signed.NewKeyFile(file)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, public)
	return nil
}

func signRelease(version, arch, archive string, files []string) error {
	keys, err := readKeys(files)
	if err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := release.Describe(version, arch, f)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	return os.WriteFile(archive+".release", r.Sign(keys...), 0o644)
}

func printPublic(files []string, out io.Writer) error {
	keys, err := readKeys(files)
	for _, k := range keys {
		fmt.Fprintln(out, signed.PublicKey(k))
	}
	return err
}

// verifyRelease checks an archive by the release next to it.
func verifyRelease(archive, keyList string, out io.Writer) error {
	text, err := regular.Read(keyList, maxKeyList)
	if err != nil {
		return err
	}
	keys, err := signed.ParseKeyList(keyList, text)
	if err != nil {
		return err
	}
	name := archive + ".release"
	if text, err = regular.Read(name, release.MaxText); err != nil {
		return err
	}
	r, err := release.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	by := []string{}
	for _, k := range keys {
		if r.VerifySignatures([]signed.Key{k}, 1) == nil {
			by = append(by, k.ID())
		}
	}
	if len(by) == 0 {
		return fmt.Errorf("%s: no key in %s has signed it", name, keyList)
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := release.Describe(r.Version, r.Arch, f)
	if err == nil && (got.Size != r.Size || got.SHA512 != r.SHA512) {
		err = errors.New("it is not the archive that was signed")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	fmt.Fprintf(out, "%s: version %s for %s, signed by %s\n", archive, r.Version, r.Arch, strings.Join(by, ", "))
	return nil
}

func readKeys(files []string) (keys []ed25519.PrivateKey, err error) {
	for _, file := range files {
		k, err := signed.ReadKeyFile(file)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}
