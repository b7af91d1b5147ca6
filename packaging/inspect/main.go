// Command inspect says what a Go binary is made of.
//
//	inspect sbom BINARY VERSION   its modules as an SPDX 2.3 document in JSON
//	inspect size BINARY           its bytes by module; the binary must have its symbols
package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "inspect:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	const usage = "usage: inspect sbom BINARY VERSION, or inspect size BINARY"
	if len(args) < 2 {
		return errors.New(usage)
	}
	info, err := buildinfo.ReadFile(args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "sbom" && len(args) == 3:
		return writeSBOM(out, info, args[2])
	case args[0] == "size" && len(args) == 2:
		return writeSizes(out, args[1], info)
	}
	return errors.New(usage)
}
