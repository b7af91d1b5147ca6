// still is a small static program, of which many fit into little memory: it waits to be
// asked to end.
#include <signal.h>
#include <unistd.h>

static void end(int s) { _exit(0); }

int main(void) {
	signal(SIGTERM, end);
	for (;;)
		pause();
}
