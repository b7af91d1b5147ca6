// Package podstate tells the state of pods, in the words of kubectl:
//
//	agent --> Watch: all pods, again after each change --> wait, apply --wait
//	pod ----> Summarize: READY, STATUS, RESTARTS --> Explain: the reason too
//	agent's status --> PrintTroubles, PrintAttention, WriteEvents --> what needs attention
package podstate
