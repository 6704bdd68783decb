# frozen_string_literal: true

require "booting"
require "installed"

# Whole applications load the same features in the same order.
class ApplicationsTest < Minitest::Test
  include Booting
  include Installed

  RAILS = File.expand_path("../../../benches/boot/rails_all", __dir__)
  # The folder of Debian's package, which is not installed for the tests alone.
  REDMINE = "/usr/share/redmine"
  TELL = "puts $LOADED_FEATURES, $LOAD_PATH, Object.constants.sort"

  def test_rails
    skip_without("rails")
    names = %w[main.rb Gemfile config/database.yml config/storage.yml]
    files = names.to_h { |name| [name, File.read("#{RAILS}/#{name}")] }
    files["main.rb"] += TELL
    program(files) do |program|
      # The first run writes Gemfile.lock, and loads more code for that purpose.
      program.plain
      said = assert_same(program)
      assert_operator said.out.lines.grep(/\.rb$/).size, :>, 1500, said.err
    end
  end

  def test_redmine
    skip "Redmine is not installed" unless File.file?("#{REDMINE}/config/environment.rb")

    main = "ENV['RAILS_ENV'] = 'production'\nDir.chdir('#{REDMINE}')\n" \
           "require '#{REDMINE}/config/environment'\n#{TELL}"
    program("main.rb" => main) do |program|
      said = assert_same(program)
      skip "Redmine does not start" unless said.status.success?
      assert_operator said.out.lines.grep(/\.rb$/).size, :>, 1500
    end
  end
end
