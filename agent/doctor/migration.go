package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/islet-edge/islet/agent/doctor/migrate"
)

// isRoots reports whether a process runs as root.
func isRoots(host fs.FS, pid int) bool {
	info, err := fs.Stat(host, fmt.Sprintf("proc/%d", pid))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0
}

// reportMigration runs islet doctor --migrate. It prints how islet takes this host over from another kubelet, from k3s, podman or docker.
// If dir is not empty, reportMigration also writes the translated settings into this directory.
func reportMigration(dir string, asJSON bool, stdout io.Writer) error {
	p := &checkup{Input: Input{Host: os.DirFS("/"), Self: os.Getpid()}}
	var others []migrate.Process
	for _, proc := range p.listProcesses() {
		if !proc.sameProgram {
			others = append(others, migrate.Process{PID: proc.pid, Name: proc.name, Root: isRoots(p.Host, proc.pid)})
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
	return err
}
