package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/islet-edge/islet/agent/doctor/migrate"
)

// reportMigration runs islet doctor --migrate. It prints how islet takes this host over from another kubelet, from k3s, podman or docker.
// If dir is not empty, reportMigration also writes the translated settings into this directory. It returns the exit code.
func reportMigration(dir string, asJSON bool, stdout, stderr io.Writer) int {
	p := &checkup{Input: Input{Host: os.DirFS("/"), Self: os.Getpid()}}
	var others []migrate.Process
	for _, proc := range p.listProcesses() {
		if !proc.sameProgram {
			others = append(others, migrate.Process{PID: proc.pid, Name: proc.name})
		}
	}
	report := migrate.Find(migrate.NewTree("/"), others)
	var err error
	if asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.Write(stdout)
	}
	if dir != "" {
		err = errors.Join(err, report.WriteFiles(dir))
	}
	if err != nil {
		fmt.Fprintln(stderr, "islet: doctor:", err)
		return 1
	}
	return 0
}
