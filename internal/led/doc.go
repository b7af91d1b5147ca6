// Package led sets the trigger of an LED of the board, so that a person at the board sees the state of the node:
//
//	Blinking  the node needs something, such as a stick
//	On        done
//	Heartbeat something cannot work
//
// The kernel has a directory for each LED: https://docs.kernel.org/leds/leds-class.html
package led
