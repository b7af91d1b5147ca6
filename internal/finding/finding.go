package finding

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/api"
)

// A Severity is the importance of a finding.
type Severity string

const (
	// Error means that the file is rejected, or that a pod of it cannot run.
	Error Severity = "error"
	// Warning means that a pod may not run as intended.
	Warning Severity = "warning"
)

// A Finding is one problem of a file.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // counted from 1; 0 if the problem does not concern a line
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"` // as in pod "web"
	Field    string   `json:"field,omitempty"`  // as in spec.containers[0].image
	Message  string   `json:"message"`
}

// A Report is the result of checking files.
type Report struct {
	Files          int       `json:"files"`
	Pods           int       `json:"pods"`
	Objects        int       `json:"objects"` // ConfigMaps, Secrets and claims
	Configurations int       `json:"configurations"`
	Errors         int       `json:"errors"`
	Warnings       int       `json:"warnings"`
	Findings       []Finding `json:"findings"`          // sorted by file and line
	Omitted        int       `json:"omitted,omitempty"` // findings that are counted, but not in Findings
}

// A File is a file with its name for messages.
type File struct {
	Name string
	Data []byte
}

// A Node contains the facts from a running node that the checks of a dry run need.
type Node struct {
	Pods    []v1.Pod
	Objects []api.Object
	Images  []api.Image
}
