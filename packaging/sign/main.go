// Command sign creates keys for signing islet's archives, and signs archives with them.
//
//	sign key FILE                          writes a new private key to FILE; prints the public key
//	sign release VERSION ARCH ARCHIVE KEYFILE...
//	                                       writes ARCHIVE.release, signed by each key
//
// A private key is "islet-ed25519-private BASE64" in a file with mode 0600.
package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"

	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/signed"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sign:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "key":
		return makeKey(args[1])
	case len(args) >= 5 && args[0] == "release":
		return signRelease(args[1], args[2], args[3], args[4:])
	}
	return errors.New("usage: sign key FILE, or sign release VERSION ARCH ARCHIVE KEYFILE...")
}

func makeKey(file string) error {
	public, err := signed.NewKeyFile(file)
	if err != nil {
		return err
	}
	fmt.Println(public)
	return nil
}

func signRelease(version, arch, archive string, files []string) error {
	var keys []ed25519.PrivateKey
	for _, file := range files {
		k, err := signed.ReadKeyFile(file)
		if err != nil {
			return err
		}
		keys = append(keys, k)
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
