package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

var sha256sum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// readParts reads the list of the OCI runtime's parts, which packaging/oci/build.sh writes. Each line has four fields, separated by tabs:
// the name, the version, the SPDX licence, and the SHA-256 of the source (or "-").
func readParts(file string) ([]spdxPackage, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parts []spdxPackage
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 || f[0] == "" || f[1] == "" || f[2] == "" || f[3] != "-" && !sha256sum.MatchString(f[3]) {
			return nil, fmt.Errorf("%s: %q is not a name, version, licence and SHA-256", file, line)
		}
		p := spdxPackage{
			ID: "SPDXRef-oci-" + spdxID(f[0]), Name: f[0], Version: f[1], Download: noAssertion,
			LicenseConcluded: f[2], LicenseDeclared: f[2],
		}
		if f[3] != "-" {
			p.Checksums = []checksum{{"SHA256", f[3]}}
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, errors.New(file + " has no part")
	}
	return parts, nil
}
