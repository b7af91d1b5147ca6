package object

import (
	"os"
	"testing"

	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

func TestMain(m *testing.M) { os.Exit(mountstest.MainIfRoot(m.Run)) }
