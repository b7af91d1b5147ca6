// Advisories checks the shipped programs against a snapshot of Go's vulnerability database,
// https://go.dev/security/vuln/database. It needs no network after Go has downloaded the scanner.
//
//	golang.org/x/vulndb --snapshot--> go.jsonl --+
//	                                             +--> govulncheck of each program --> check
//	reviewed.txt: advisories that are harmless --+
//	oci.txt: the parts of the OCI runtime, reviewed by hand --> check
//
// The snapshot contains the advisories for the modules of the build at the time of the snapshot. The check fails if a linked module is
// not in the snapshot's list, or if a linked package has an advisory that is not in reviewed.txt.
//
//	advisories snapshot VERSION DIR     take a snapshot of the OSV files in DIR, from golang.org/x/vulndb at VERSION
//	advisories check [-max-age DAYS] PACKAGE...   check the programs of these packages
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// A checker contains the paths of the input files of a check.
type checker struct {
	dir     string // folder of go.jsonl, reviewed.txt and oci.txt
	sources string // list of the OCI runtime's source packages
	patches string // folder of the OCI runtime's patches
	now     time.Time
	out     io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir := filepath.Join("packaging", "advisories")
	c := checker{
		dir: dir, sources: filepath.Join("packaging", "oci", "sources"), patches: filepath.Join("packaging", "oci", "patches"),
		now: time.Now(), out: os.Stdout,
	}
	if err := c.run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "advisories:", err)
		os.Exit(1)
	}
}

const usage = "usage: advisories snapshot VERSION DIR | advisories check [-max-age DAYS] PACKAGE..."

func (c checker) run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "snapshot":
		return c.takeSnapshot(ctx, args[1], args[2])
	case len(args) > 1 && args[0] == "check":
		flags := flag.NewFlagSet("check", flag.ContinueOnError)
		days := flags.Int("max-age", 0, "fail if the snapshot is older than this many days (0: any age is accepted)")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if flags.NArg() == 0 {
			return fmt.Errorf("check: name at least one package\n%s", usage)
		}
		return c.check(ctx, time.Duration(*days)*24*time.Hour, flags.Args())
	}
	return fmt.Errorf("%s", usage)
}
