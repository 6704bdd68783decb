# frozen_string_literal: true

require "fileutils"

# A folder of gems for a Ruby of Windows: copies of this machine's gems that are written in Ruby.
module GemHome
  # Where Debian has the files of gems that have no folder of their own.
  VENDOR = "/usr/lib/ruby/vendor_ruby"
  # The names of those files.
  FILES = { "racc" => %w[racc racc.rb], "tilt" => %w[tilt tilt.rb] }.freeze

  # Copies the gems, and those that they need. Returns the name of one that is not there, if there
  # is one.
  def self.build(home, names)
    %w[gems specifications].each { |name| FileUtils.mkdir_p("#{home}/#{name}") }
    known = {}
    until names.empty?
      name = names.shift
      next if known[name]

      spec = Gem::Specification.find_all_by_name(name).max_by(&:version)
      return name unless spec && copy(spec, home)

      known[name] = spec
      names.concat(spec.runtime_dependencies.map(&:name))
    end
  end

  def self.copy(spec, home)
    folder = "#{home}/gems/#{spec.full_name}"
    if File.directory?(spec.full_gem_path)
      FileUtils.cp_r(spec.full_gem_path, folder)
    else
      FileUtils.mkdir_p("#{folder}/lib")
      files = FILES.fetch(spec.name, []).map { |name| "#{VENDOR}/#{name}" }
      files.select! { |file| File.exist?(file) }
      return if files.empty?

      FileUtils.cp_r(files, "#{folder}/lib")
    end
    # Debian's files name no platform, so they serve for any.
    FileUtils.cp(spec.loaded_from, "#{home}/specifications")
    true
  end
end
