# frozen_string_literal: true

# Loads the extension for the running Ruby: the gem has one for each of several Rubies.
version = RUBY_VERSION[/\A\d+\.\d+/]
extension = "#{__dir__}/#{version}/thruway.so"
unless File.file?(extension)
  raise LoadError, "this gem of thruway has no extension for Ruby #{version}; " \
                   "gem install thruway --platform ruby compiles one"
end
require extension
