# frozen_string_literal: true

# Starts the boot in every Ruby below `thruway run`. RUBYLIB makes Ruby load this file in place of
# RubyGems, the first feature that Ruby requires by itself. At its end, the file requires RubyGems,
# which comes from the pack. A Ruby without RubyGems loads the file through RUBYOPT, after the
# features of its command line. RUBYOPT names `run.rb` twice: when Ruby requires `run.rb` for the
# second time, the boot removes the gem's own names from $LOADED_FEATURES. The code must run in any
# Ruby, and does nothing in a Ruby without an extension.

$LOAD_PATH.delete_if { |folder| folder.end_with?("/thruway/first") }

# Since Ruby 4.0, RUBY_BOX=1 gives each box a load path, features and methods of its own. The boot
# knows only one of each, so it leaves boxes to Ruby.
in_boxes = Object.const_defined?("Ruby::Box") && Ruby::Box.enabled?

start = lambda do
  next false if in_boxes

  version = RUBY_VERSION[/\A\d+\.\d+/]
  folders = ENV.fetch("THRUWAY_EXTENSIONS", File.dirname(__dir__)).split(File::PATH_SEPARATOR)
  suffix = RUBY_PLATFORM.include?("darwin") ? "bundle" : "so"
  extensions = folders.map { |folder| "#{folder}/#{version}/thruway.#{suffix}" }
  extension = extensions.find { |path| File.file?(path) }
  next false unless RUBY_ENGINE == "ruby" && extension

  was_defined = Object.const_defined?(:Thruway)
  require extension
  boot = Thruway::Boot
  template = Thruway.const_defined?(:Template) && Thruway::Template
  Object.send(:remove_const, :Thruway) unless was_defined
  # The deletion comes early, while there are few features: after a change of $LOADED_FEATURES, Ruby
  # resolves the real path of each feature again.
  $LOADED_FEATURES.delete(extension)
  # RUBYLIB contains the gem's folder only if the folder has a blank, because RUBYOPT cannot name
  # `run.rb` by such a path.
  library = File.dirname(__dir__, 2)
  library = nil unless library.match?(/\s/)
  boot.take_over(lambda do
    own = ["/thruway/run.rb", "/thruway/first/rubygems.rb"]
    own = $LOADED_FEATURES.select { |path| path.end_with?(*own) }
    own.each { |path| $LOADED_FEATURES.delete(path) }
    # The rest runs only once. The folder from RUBYLIB is the last, because a program may add the
    # same folder in front.
    index = library && $LOAD_PATH.rindex(library)
    library = nil
    $LOAD_PATH.delete_at(index) if index
    # In a process that becomes a template, `run` returns only in its children.
    native, template = template, nil
    if native
      load("#{File.dirname(__dir__)}/preload/preload_template.rb", namespace = Module.new)
      namespace::PreloadTemplate.new(native).run
    end
  end)
rescue LoadError
  # The extension is built for another platform.
  false
end

explain = lambda do
  is_second = $LOADED_FEATURES.any? { |path| path.end_with?("/thruway/first/rubygems.rb") }
  next if is_second || !ENV.fetch("THRUWAY_BOOT", "").split(",").include?("explain")

  reason = in_boxes ? "RUBY_BOX=1 is set" : "the gem is not built for #{RUBY_DESCRIPTION}"
  warn "thruway: Ruby boots without the pack: #{reason}"
end

start.call || explain.call

# Ruby defines the module `Gem` beforehand unless RubyGems is disabled.
require "rubygems" if defined?(Gem)
