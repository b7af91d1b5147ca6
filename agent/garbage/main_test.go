package garbage

import (
	"os"
	"testing"

	"github.com/islet-edge/islet/agent/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "garbage")) }
