// Package internal holds what every part of islet may use, and what imports nothing else of
// islet: the configuration (config), the types of the local socket (api), and small concepts,
// such as when to try again (retry) or files that a loss of power leaves whole (durable).
package internal
