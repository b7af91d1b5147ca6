package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A document is an SPDX 2.3 document, with the fields that writeSBOM sets. See https://spdx.github.io/spdx-spec/v2.3/.
type document struct {
	Version       string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID               string      `json:"SPDXID"`
	Name             string      `json:"name"`
	Version          string      `json:"versionInfo"`
	Download         string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	References       []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const noAssertion = "NOASSERTION"

// writeSBOM writes the list of a program's components: the main module in the given version, the other modules, Go itself, and the parts of
// the OCI runtime that is shipped with the program. The first of these parts is the runtime. The other parts are linked into the runtime.
// The output is reproducible, because its time is SOURCE_DATE_EPOCH. See https://reproducible-builds.org/docs/source-date-epoch/.
func writeSBOM(out io.Writer, info *debug.BuildInfo, version string, runtime []spdxPackage) error {
	created := time.Unix(0, 0)
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		created = time.Unix(n, 0)
	}
	platform := buildSetting(info, "GOOS") + "-" + buildSetting(info, "GOARCH")
	info.Main.Version = version
	main := describeModule(&info.Main)
	d := document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "islet-" + main.Version + "-" + platform,
		Namespace:     "https://" + info.Main.Path + "/sbom/" + main.Version + "/" + platform,
		Creation:      creation{created.UTC().Format(time.RFC3339), []string{"Tool: islet-inspect"}},
		Packages:      []spdxPackage{main},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", main.ID}},
	}
	d.Packages[0].LicenseConcluded, d.Packages[0].LicenseDeclared = "Apache-2.0", "Apache-2.0"
	parts := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for _, m := range parts {
		if m.Replace != nil {
			m = m.Replace
		}
		p := describeModule(m)
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{main.ID, "DEPENDS_ON", p.ID})
	}
	for i, p := range runtime {
		d.Packages = append(d.Packages, p)
		if i == 0 {
			d.Relationships = append(d.Relationships, relationship{"SPDXRef-DOCUMENT", "DESCRIBES", p.ID})
			continue
		}
		d.Relationships = append(d.Relationships, relationship{runtime[0].ID, "STATIC_LINK", p.ID})
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(d)
}

// describeModule returns the SPDX package for a Go module. Its checksum is Go's h1 sum: the SHA-256 of the checksums of the module's
// files. See
// https://go.dev/ref/mod#go-sum-files.
func describeModule(m *debug.Module) spdxPackage {
	p := spdxPackage{
		ID: "SPDXRef-" + spdxID(m.Path), Name: m.Path, Version: m.Version, Download: noAssertion,
		LicenseConcluded: noAssertion, LicenseDeclared: noAssertion,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
	if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if b, err := base64.StdEncoding.DecodeString(sum); err == nil {
			p.Checksums = []checksum{{"SHA256", hex.EncodeToString(b)}}
		}
	}
	return p
}

// spdxID converts a module's path to an SPDX identifier, which has only letters, digits, dots and dashes.
func spdxID(path string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.':
			return r
		}
		return '-'
	}, path)
}

func buildSetting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
