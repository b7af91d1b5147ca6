// Command inspect reports the components of a Go binary.
//
//	inspect sbom BINARY VERSION [PARTS]   its modules as an SPDX 2.3 document in JSON, and the parts
//	                                      of the OCI runtime in PARTS (packaging/oci/build.sh)
//	inspect notices BINARY...             the licences of their modules
//	inspect size BINARY                   its bytes by module; the binary must have its symbols
//	inspect features BINARY SOURCE        the bytes that each feature of islet costs; SOURCE is the directory of its main package
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
	const usage = "usage: inspect sbom BINARY VERSION [PARTS], inspect notices BINARY..., inspect size BINARY, " +
		"or inspect features BINARY SOURCE"
	if len(args) < 2 {
		return errors.New(usage)
	}
	if args[0] == "notices" {
		return writeNotices(out, args[1:])
	}
	info, err := buildinfo.ReadFile(args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "sbom" && len(args) == 3:
		return writeSBOM(out, info, args[2], nil)
	case args[0] == "sbom" && len(args) == 4:
		parts, err := readParts(args[3])
		if err != nil {
			return err
		}
		return writeSBOM(out, info, args[2], parts)
	case args[0] == "size" && len(args) == 2:
		return writeSizes(out, args[1], info)
	case args[0] == "features" && len(args) == 3:
		return writeFeatures(out, args[1], args[2])
	}
	return errors.New(usage)
}
