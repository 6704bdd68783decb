# frozen_string_literal: true

# Loads every fixture in the given folders, each only up to its first line. So all fixtures get
# into the pack, whatever they do. Prints the path of each fixture that Ruby can compile.

fixtures = ARGV.flat_map { |folder| Dir["#{folder}/**/*"] }.select { |path| File.file?(path) }

def begins?(path)
  at_first_line = TracePoint.new(:line) { |point| throw path if point.path == path }
  catch(path) { at_first_line.enable { load path } }
  true
rescue SyntaxError
  false
end

puts(fixtures.sort.select { |path| begins?(path) })
