# frozen_string_literal: true

# The Ruby program that `cargo x bench names` drives: `ruby KIND` and `thruway KIND` in a line of
# its input, answered with the nanoseconds that one name takes.

require "thruway"

NAMES = Array.new(1000) { |number| "lib/../ext/./feature#{number}.rb" }
ROUNDS = 50
BASES = { "absolute" => nil, "based" => "/srv/app", "current" => nil, "home" => nil }.freeze
PREFIXES = { "absolute" => "/srv/app/", "based" => "", "current" => "", "home" => "~/" }.freeze

def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

def time_of(owner, kind)
  base = BASES.fetch(kind)
  names = NAMES.map { |name| PREFIXES.fetch(kind) + name }
  GC.start
  start = clock
  ROUNDS.times { names.each { |name| owner.expand_path(name, base) } }
  (clock - start).fdiv(ROUNDS * NAMES.size)
end

$stdout.sync = true
$stdin.each_line do |line|
  owner, kind = line.split
  puts time_of({ "ruby" => File, "thruway" => Thruway }.fetch(owner), kind)
end
