package garbage

import (
	"os"
	"testing"

	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "garbage")) }
